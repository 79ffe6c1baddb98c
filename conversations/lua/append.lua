-- ARGV: version, epoch, format, seconds to live, now in ms, window, position, turn.
-- 1 = applied, 2 = known already, 3 = kept for the filler, 0 = no copy, -1 = copy dropped.
local h = header('v', 'lease', 'e', 'f', 'n')
if not h then return -1 end
local version, position, window = tonumber(ARGV[1]), tonumber(ARGV[7]), tonumber(ARGV[6])
local mark = 'x:' .. ARGV[1]
if not h[1] and not h[2] then return 0 end
if h[4] ~= ARGV[3] or (h[1] and h[3] ~= ARGV[2]) then
  redis.call('DEL', key)
  return -1
end
if not h[1] then
  redis.call('HSET', key, mark, position, 't:' .. position, ARGV[8])
  return 3
end
local have, count = tonumber(h[1]), tonumber(h[5])
if version <= have then return 2 end
if position > count - window then redis.call('HSET', key, 't:' .. position, ARGV[8]) end
redis.call('HDEL', key, 't:' .. (position - window))
if position > count then redis.call('HSET', key, 'n', position) end
if version == have + 1 then
  redis.call('HSET', key, 'v', advance(version), 'c', ARGV[5])
else
  redis.call('HSET', key, mark, position)
end
redis.call('EXPIRE', key, ARGV[4])
return 1
