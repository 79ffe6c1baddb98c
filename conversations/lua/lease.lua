-- ARGV: token, milliseconds, version seen, format. 1 = taken, 0 = somebody fills or the copy has changed.
local h = header('v', 'lease')
if h and h[1] then
  if h[1] ~= ARGV[3] then return 0 end
  redis.call('DEL', key)
elseif h and h[2] then
  return 0
end
redis.call('HSET', key, 'lease', ARGV[1], 'f', ARGV[4])
redis.call('PEXPIRE', key, ARGV[2])
return 1
