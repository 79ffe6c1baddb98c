-- ARGV: version, epoch, format, seconds to live, window, position, turn.
-- 1 = applied, 2 = known already, 3 = kept for the filler, 0 = no copy, -1 = copy dropped.
local h = header('v', 'lease', 'e', 'f', 'n')
if not h then return -1 end
if not h[1] and not h[2] then return 0 end
if h[4] ~= ARGV[3] or ((h[1] or h[3]) and h[3] ~= ARGV[2]) then return drop() end
local version, window, position = tonumber(ARGV[1]), tonumber(ARGV[5]), tonumber(ARGV[6])
local mark = 'x:' .. ARGV[1]
if not h[1] then
  redis.call('HSET', key, 'e', ARGV[2], mark, position, 't:' .. position, ARGV[7])
  return 3
end
local have, count = tonumber(h[1]), tonumber(h[5])
-- A copy that says it holds this change and lacks its turn was not written by us.
if not have or not count or (version <= have and position > count) then return drop() end
if version <= have then return 2 end
if position > count - window then redis.call('HSET', key, 't:' .. position, ARGV[7]) end
redis.call('HDEL', key, 't:' .. (position - window))
if position > count then redis.call('HSET', key, 'n', position) end
if version == have + 1 then
  redis.call('HSET', key, 'v', advance(version))
else
  redis.call('HSET', key, mark, position)
end
redis.call('EXPIRE', key, ARGV[4])
return 1
