-- ARGV: version, epoch, when in ms, seconds to live.
local h = header('v', 'e')
if not h or h[1] ~= ARGV[1] or h[2] ~= ARGV[2] then return 0 end
redis.call('HSET', key, 'c', ARGV[3])
redis.call('EXPIRE', key, ARGV[4])
return 1
