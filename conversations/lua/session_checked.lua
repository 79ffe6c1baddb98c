-- ARGV: count, when in ms. Notes that the table showed just this count.
local h = header('n')
if not h or h[1] ~= ARGV[1] then return 0 end
redis.call('HSET', key, 'c', ARGV[2])
return 1
