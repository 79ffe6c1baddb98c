-- ARGV: version, epoch, now in ms.
local h = header('v', 'e')
if not h or h[1] ~= ARGV[1] or h[2] ~= ARGV[2] then return 0 end
redis.call('HSET', key, 'c', ARGV[3])
return 1
