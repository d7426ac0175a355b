-- Shared by `commit` and `append`: prepended to both.
--
-- A script has no rollback. Everything that could stop it midway (a foreign value under one of our keys, missing parts
-- of the data, a command that the user may not run, too many arguments) is checked before the first write.

local MOST_ARGUMENTS = 4000 -- Lua unpacks no more than 8,000 at once
local has_two_keys = {COPY = true, RENAME = true}

-- Return a place in the log as text that sorts by its bytes.
local function padded(number)
  return string.format('%010d', number)
end

-- Add entries to a log and to the feed. `put` is {log, kinds, feed, meta, updated (indexes of KEYS), session,
-- first number, then for each entry: its label, its body}. An entry can be found by its label; a message of a
-- user, an assistant or a tool has none. Without entries, the feed reports that the session was deleted. The feed's
-- cursor is counted here, so that its order is that of commits. The log is written first: it refuses a repeated number.
local function add_entries(put)
  local log, feed, meta, session = KEYS[put[1]], KEYS[put[3]], KEYS[put[4]], put[6]
  local count = (#put - 7) / 2
  local cursor = tonumber(redis.call('HGET', meta, 'feed') or '0')
  for i = 0, count - 1 do
    local number, label = put[7] + i, put[8 + 2 * i]
    redis.call('XADD', log, number .. '-0', 'b', put[9 + 2 * i], 'c', string.format('%.0f', cursor + 1 + i))
    if label ~= '' then
      redis.call('ZADD', KEYS[put[2]], 0, label .. ':' .. padded(number))
    end
  end
  local is_deletion = count == 0
  local events = is_deletion and 1 or count
  local last = string.format('%.0f', cursor + events)
  redis.call('HSET', meta, 'feed', last)
  redis.call('XADD', feed, last .. '-0', 's', session, 'l', is_deletion and 0 or put[7] + count - 1, 'n', events)
  if not is_deletion then
    redis.call('ZADD', KEYS[put[5]], last, session)
  end
end

-- Return whether all numbers of a stream are below the first new one.
local function ends_before(stream, first)
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return not newest or tonumber(string.match(newest[1], '^%d+')) < first
end

-- Return why a key cannot be written; nothing if it can.
local function why_not_type(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then
    return 'WRONGTYPE ' .. key .. ' is not a ' .. kind
  end
end

-- Return why the feed cannot be written; nothing if it can. Reading it fails if the key has another type.
local function why_not_feed(put)
  local cursor = tonumber(redis.call('HGET', KEYS[put[4]], 'feed') or '0')
  if not cursor or not ends_before(KEYS[put[3]], cursor + 1) then
    return 'MOORAGE the feed ' .. KEYS[put[3]] .. ' goes on after cursor ' .. tostring(cursor)
  end
  return why_not_type(KEYS[put[5]], 'zset')
end

-- Return why entries cannot be added after other writes; nothing if they can.
local function why_not_add(put)
  if #put > 7 and not ends_before(KEYS[put[1]], put[7]) then
    return 'MOORAGE the log ' .. KEYS[put[1]] .. ' goes on after entry ' .. (put[7] - 1)
  end
  return why_not_feed(put) or why_not_type(KEYS[put[2]], 'zset')
end

-- Return why the user may not run a command; nothing if it may.
local function why_not_run(command, key, ...)
  if not redis.acl_check_cmd(command, key, ...) then
    return 'NOPERM this user may not run ' .. command .. ' (ACL)'
  end
end

-- Return why a plain write of `plan` cannot be made; nothing if it can. `seen` has the checked keys and commands.
local function why_not_write(op, seen)
  local command, key = op[1] == 'PUT' and 'HSET' or op[1], KEYS[op[2]]
  local kind = ({H = 'hash', Z = 'zset', X = 'stream', S = 'string'})[string.sub(command, 1, 1)]
  if kind and not seen[key] then
    seen[key] = true
    local why = why_not_type(key, kind)
    if why then
      return why
    end
  end
  if #op > MOST_ARGUMENTS then
    return 'MOORAGE ' .. command .. ' ' .. key .. ' has too many arguments'
  end
  if not seen[command] then
    seen[command] = true
    if has_two_keys[command] then
      return why_not_run(command, key, KEYS[op[3]])
    end
    return why_not_run(command, key, unpack(op, 3))
  end
end

-- A hint for waiting clients. The commit stands even if this user may not publish.
local function tell(channel, who)
  redis.pcall('PUBLISH', channel, who)
end
