-- ARGV: token, seconds to live, window, then field and value in turn.
-- 1 = filled, 0 = the lease is gone, -1 = and dropped: it holds changes of another history.
local h = header('lease', 'e')
if not h or h[1] ~= ARGV[1] then return 0 end
local copy = {}
for i = 4, #ARGV, 2 do copy[ARGV[i]] = ARGV[i + 1] end
if h[2] and h[2] ~= copy['e'] then return drop() end
local version, count, window = tonumber(copy['v']), tonumber(copy['n']), tonumber(ARGV[3])

-- Appends that came while the lease stood and that PostgreSQL did not show us yet.
local fields, early = {}, {}
local held = redis.call('HGETALL', key)
for i = 1, #held, 2 do fields[held[i]] = held[i + 1] end
for field, position in pairs(fields) do
  if string.sub(field, 1, 2) == 'x:' and tonumber(string.sub(field, 3)) > version then
    early[field] = position
  end
end

redis.call('DEL', key)
for i = 4, #ARGV, 1000 do  -- Lua can't unpack thousands at once
  redis.call('HSET', key, unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
local newest = count
for mark, position in pairs(early) do
  redis.call('HSET', key, mark, position, 't:' .. position, fields['t:' .. position])
  newest = math.max(newest, tonumber(position))
end
if newest > count then
  redis.call('HSET', key, 'n', newest, 'v', advance(version))
  for position = count - window + 1, newest - window do
    redis.call('HDEL', key, 't:' .. position)
  end
end
redis.call('EXPIRE', key, ARGV[2])
return 1
