-- ARGV: token, milliseconds, count seen.
-- 1 = taken, 0 = somebody fills, or the copy is not the one that was seen.
local h = header('n', 'lease')
if h and h[1] and h[1] ~= ARGV[3] then return 0 end
if h and not h[1] and h[2] and redis.call('PTTL', key) > 0 then return 0 end
redis.call('DEL', key)
redis.call('HSET', key, 'lease', ARGV[1])
redis.call('PEXPIRE', key, ARGV[2])
return 1
