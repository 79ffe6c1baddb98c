-- ARGV: version, epoch, format, seconds to live, position, turn.
-- A change that is not an append applies to the version before it or not at all.
local h = header('v', 'lease', 'e', 'f', 't:' .. ARGV[5])
if not h then return -1 end
if not h[1] and not h[2] then return 0 end
local version, have = tonumber(ARGV[1]), tonumber(h[1] or '')
if not have or h[3] ~= ARGV[2] or h[4] ~= ARGV[3] then return drop() end
if version <= have then return 2 end
if version ~= have + 1 then return drop() end
if h[5] then redis.call('HSET', key, 't:' .. ARGV[5], ARGV[6]) end
redis.call('HSET', key, 'v', advance(version))
redis.call('EXPIRE', key, ARGV[4])
return 1
