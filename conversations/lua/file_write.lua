-- One key: a file that is not whole yet. Adds pages to it, and tells how much room there is left.
-- ARGV: the share of Redis's memory up to which uploads may fill it, seconds to live, and fields
-- with their values. Without fields nothing is written. Room is in bytes, and may be below 0.
if #ARGV > 2 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 3))
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
local info = redis.call('INFO', 'memory')
local function bytes(name)
  return tonumber(string.match(info, '\n' .. name .. ':(%d+)') or 0)
end
local most = bytes('maxmemory')
if most == 0 then most = bytes('total_system_memory') end
return math.floor(most * ARGV[1] - bytes('used_memory'))
