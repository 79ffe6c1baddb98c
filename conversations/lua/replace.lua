-- ARGV: version, epoch, format, seconds to live, now in ms, position, turn.
-- A change that is not an append applies to the version before it or not at all.
local h = header('v', 'lease', 'e', 'f', 't:' .. ARGV[6])
if not h then return -1 end
if not h[1] and not h[2] then return 0 end
local version, have = tonumber(ARGV[1]), tonumber(h[1] or '')
local known = have and h[3] == ARGV[2] and h[4] == ARGV[3]
if known and version <= have then return 2 end
if not known or version ~= have + 1 then
  redis.call('DEL', key)
  return -1
end
if h[5] then redis.call('HSET', key, 't:' .. ARGV[6], ARGV[7]) end
redis.call('HSET', key, 'v', advance(version), 'c', ARGV[5])
redis.call('EXPIRE', key, ARGV[4])
return 1
