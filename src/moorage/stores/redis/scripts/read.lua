-- Several reads of one instant. ARGV[1] is a list of {command, index of its key, arguments …}. The answers are packed
-- in one text, which clients decode many times as fast; unless they may contain bytes that are no text (ARGV[2]).

-- Return a row without its value. The value of a record in parts says where they are, and is kept.
local function without_value(row)
  local head, parts = string.match(row, '^(%S+ %S+ %S+ (%S+) %S+ %S+ )')
  return parts == '0' and head or row
end

-- Records are {'RECORDS', names, rows, ends (indexes of KEYS), time or false, whether to return values, then names, or
-- 'RANGE', least, most, how many, whether from the end}. Expired records are skipped if a time is given. Returns names,
-- rows and ends ('' for none), one after another.
local function records(op)
  local names, rows, ends, at, with_values = KEYS[op[2]], KEYS[op[3]], KEYS[op[4]], op[5], op[6]
  local found = {}

  local function add(name)
    local row, last = redis.call('HGET', rows, name), redis.call('ZSCORE', ends, name)
    if not row or (at and last and tonumber(last) <= at) then
      return
    end
    found[#found + 1] = name
    found[#found + 1] = with_values and row or without_value(row)
    found[#found + 1] = last or ''
  end

  if op[7] ~= 'RANGE' then
    for i = 7, #op do
      add(op[i])
    end
    return found
  end
  local least, most, limit, descending = op[8], op[9], op[10], op[11]
  while #found < 3 * limit do
    local part
    if descending then
      part = redis.call('ZREVRANGEBYLEX', names, most, least, 'LIMIT', 0, limit)
    else
      part = redis.call('ZRANGEBYLEX', names, least, most, 'LIMIT', 0, limit)
    end
    for _, name in ipairs(part) do
      if #found < 3 * limit then
        add(name)
      end
    end
    if #part < limit then
      break
    end
    if descending then
      most = '(' .. part[#part]
    else
      least = '(' .. part[#part]
    end
  end
  return found
end

local answers = {}
for i, op in ipairs(cmsgpack.unpack(ARGV[1])) do
  if op[1] == 'RECORDS' then
    answers[i] = records(op)
  else
    answers[i] = redis.call(op[1], KEYS[op[2]], unpack(op, 3))
  end
end
return ARGV[2] == 'bytes' and answers or cmsgpack.pack(answers)
