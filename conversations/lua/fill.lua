-- ARGV: token, seconds to live, window, then field and value in turn (v fourth, n fifth).
local h = header('lease')
if not h or h[1] ~= ARGV[1] then return 0 end
local copy = {}
for i = 4, #ARGV, 2 do copy[ARGV[i]] = ARGV[i + 1] end
local version, count = tonumber(copy['v']), tonumber(copy['n'])

-- Appends that came while the lease stood and that PostgreSQL did not show us yet.
local held = redis.call('HGETALL', key)
local fields = {}
for i = 1, #held, 2 do fields[held[i]] = held[i + 1] end
local early = {}
for field, position in pairs(fields) do
  if string.sub(field, 1, 2) == 'x:' and tonumber(string.sub(field, 3)) > version then
    early[#early + 1] = field
    early[#early + 1] = position
    early[#early + 1] = 't:' .. position
    early[#early + 1] = fields['t:' .. position]
    if tonumber(position) > count then count = tonumber(position) end
  end
end

redis.call('DEL', key)
redis.call('HSET', key, unpack(ARGV, 4))
if #early > 0 then
  redis.call('HSET', key, unpack(early))
  redis.call('HSET', key, 'n', count, 'v', advance(version))
  local first = tonumber(copy['n']) - tonumber(ARGV[3]) + 1
  for position = first, count - tonumber(ARGV[3]) do
    redis.call('HDEL', key, 't:' .. position)
  end
end
redis.call('EXPIRE', key, ARGV[2])
return 1
