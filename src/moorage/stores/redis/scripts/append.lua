-- The hot path: append messages to an open session.
--
-- KEYS: head, log, kinds, feed, meta, updated, client keys, idle, created, active, lock.
-- ARGV: channel, sender, time, token or '', end of its hold, version or '', session, then for each message: label,
-- body, client key or ''. Returns the first number and the session's task. Returns nothing if the session does not
-- exist or a closer check is needed: then the rules decide.
local head = KEYS[1]
if redis.call('EXISTS', KEYS[11]) == 1 then
  return false
end
local state, last, version, token, live, revision, task, serial =
  unpack(redis.call('HMGET', head, 'state', 'last', 'version', 'token', 'live', 'revision', 'task', 'serial'))
local at, session = ARGV[3], ARGV[7]
if state ~= 'created' and state ~= 'active' and state ~= 'suspended' then
  return false
end
if (ARGV[4] ~= '' and ARGV[4] ~= token) or (ARGV[6] ~= '' and ARGV[6] ~= version) then
  return false
end
local first = (tonumber(last) or 0) + 1
if first == 1 or not tonumber(revision) or not tonumber(serial) then
  return false
end

-- Check what would stop the writes midway; keys that are not needed are not read.
local put, has_label, has_key = {2, 3, 4, 5, 6, session, first}, false, false
for i = 8, #ARGV, 3 do
  put[#put + 1] = ARGV[i]
  put[#put + 1] = ARGV[i + 1]
  has_label = has_label or ARGV[i] ~= ''
  has_key = has_key or ARGV[i + 2] ~= ''
end
local is_woken = state == 'created'
local why = why_not_feed(put)
  or why_not_type(KEYS[8], 'zset')
  or (has_label and why_not_type(KEYS[3], 'zset'))
  or (has_key and why_not_type(KEYS[7], 'hash'))
  or (is_woken and (why_not_type(KEYS[9], 'zset') or why_not_type(KEYS[10], 'zset')))
  or why_not_run('XADD', KEYS[2], '1-0', 's', 's')
  or why_not_run('HSET', head, 's', 's')
  or why_not_run('ZADD', KEYS[8], 0, 's')
  or (is_woken and why_not_run('ZREM', KEYS[9], 's'))
if why then
  return redis.error_reply(why)
end
if has_key then
  for i = 10, #ARGV, 3 do
    if ARGV[i] ~= '' and redis.call('HEXISTS', KEYS[7], ARGV[i]) == 1 then
      return false
    end
  end
end

-- The log may still refuse; after this write nothing does.
add_entries(put)
if has_key then
  for i = 10, #ARGV, 3 do
    if ARGV[i] ~= '' then
      redis.call('HSET', KEYS[7], ARGV[i], first + (i - 10) / 3)
    end
  end
end
local count = (#ARGV - 7) / 3
redis.call('HSET', head, 'revision', revision + 1, 'last', first + count - 1, 'activity', at, 'updated', at)
if ARGV[4] ~= '' and (live or '') == '' then
  redis.call('HSET', head, 'until', ARGV[5])
end
if is_woken then
  redis.call('HSET', head, 'state', 'active')
  redis.call('ZREM', KEYS[9], session)
  redis.call('ZADD', KEYS[10], serial, session)
end
redis.call('ZADD', KEYS[8], at, session)
tell(ARGV[1], ARGV[2])
return {first, task}
