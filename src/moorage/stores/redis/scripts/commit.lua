-- Write all of it or nothing. ARGV[1] is {guards, writes, entries, writes after them}; ARGV[2] and ARGV[3]: channel and
-- sender of the notification; then bodies, which a write {'PUT', index of its key, field, index of ARGV} names.
--
-- A guard is {command, index of its key, argument or false, the expected answer, or false for none}; 'MOST' is an
-- exclusive limit for the size of a sorted set. Returns {} after the writes, or the position of the first failed guard
-- and the answer of its command.
local plan = cmsgpack.unpack(ARGV[1])

-- Guards first. Nothing is written before all of them hold.
for i, guard in ipairs(plan[1]) do
  local command, key, argument, wanted = guard[1], KEYS[guard[2]], guard[3], guard[4]
  local found
  if command == 'MOST' then
    found = redis.call('ZCARD', key)
    if found >= wanted then
      return {i, tostring(found)}
    end
  else
    if argument then
      found = redis.call(command, key, argument)
    else
      found = redis.call(command, key)
    end
    if type(found) == 'number' then
      found = tostring(found)
    end
    if found ~= wanted then
      return {i, found}
    end
  end
end

-- Then whatever would stop the writes half-way.
local seen = {}
for i = 2, 4, 2 do
  for _, op in ipairs(plan[i]) do
    local why = why_not_write(op, seen)
    if why then
      return redis.error_reply(why)
    end
  end
end
for _, put in ipairs(plan[3]) do
  local why = why_not_add(put)
    or why_not_run('XADD', KEYS[put[3]], '1-0', 's', 's')
    or why_not_run('HSET', KEYS[put[4]], 'feed', 1)
    or why_not_run('ZADD', KEYS[put[5]], 0, 's')
  if why then
    return redis.error_reply(why)
  end
end

local function write(op)
  if op[1] == 'PUT' then -- a body of bytes is a separate argument: cmsgpack has only text
    redis.call('HSET', KEYS[op[2]], op[3], ARGV[op[4]])
  elseif has_two_keys[op[1]] then
    redis.call(op[1], KEYS[op[2]], KEYS[op[3]])
  else
    redis.call(op[1], KEYS[op[2]], unpack(op, 3))
  end
end

for _, op in ipairs(plan[2]) do
  write(op)
end
for _, put in ipairs(plan[3]) do
  add_entries(put)
end
for _, op in ipairs(plan[4]) do
  write(op)
end
tell(ARGV[2], ARGV[3])
return {}
