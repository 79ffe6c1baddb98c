-- ARGV: token, seconds to live, then field and value in turn.
-- 0 = the lease is gone, 1 = filled, 2 = and the session has files.
local h = header('lease')
if not h or h[1] ~= ARGV[1] then return 0 end
redis.call('DEL', key)
for i = 3, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
return 1 + live_on(ARGV[2])
