-- ARGV: version, epoch, format, seconds to live, window, folded through, head.
-- A change that is not an append applies to the version before it or not at all.
local h = header('v', 'lease', 'e', 'f')
if not h then return -1 end
if not h[1] and not h[2] then return 0 end
local version, have = tonumber(ARGV[1]), tonumber(h[1] or '')
if not have or h[3] ~= ARGV[2] or h[4] ~= ARGV[3] then return drop() end
if version <= have then return 2 end
if version ~= have + 1 then return drop() end
local through = tonumber(ARGV[6])
for position = math.max(1, through - tonumber(ARGV[5])), through do
  redis.call('HDEL', key, 't:' .. position)
end
redis.call('HSET', key, 'k', ARGV[6], 'h', ARGV[7], 'v', advance(version))
redis.call('EXPIRE', key, ARGV[4])
return 1
