-- ARGV: format, seconds to live, most messages, most opening ones, when in ms, then in fours:
-- number, message id, entry, message. Without messages the session only lives on.
-- -1 = copy dropped, 0 = no copy, 1 = applied, 2 = and the session has files.
local h = header('f', 'n', 'lease', 'b', 's')
if not h then return -1 end
if not h[2] then
  -- Somebody who reads PostgreSQL now may have read too early.
  if h[3] then return drop() end
  return 0
end
local have, first, opening = tonumber(h[2]), tonumber(h[4] or ''), tonumber(h[5] or '')
if h[1] ~= ARGV[1] or not (have and first and opening) then return drop() end

-- One that overtakes another writes its message; the count follows when the gap is closed.
for i = 6, #ARGV, 4 do
  local number, id, entry = tonumber(ARGV[i]), 'i:' .. ARGV[i + 1], ARGV[i + 2]
  if number > have then
    redis.call('HSET', key, 'm:' .. ARGV[i], ARGV[i + 3], id, entry)
  elseif redis.call('HGET', key, id) ~= entry then
    return drop()  -- a copy that says it holds this message was not written by us
  end
end
while redis.call('HEXISTS', key, string.format('m:%d', have + 1)) == 1 do have = have + 1 end
redis.call('HSET', key, 'n', have)
if #ARGV > 5 and have == tonumber(ARGV[#ARGV - 3]) then redis.call('HSET', key, 'c', ARGV[5]) end

-- Return role and id, which a message begins with.
local function head(number)
  local stored = redis.call('HGET', key, string.format('m:%d', number))
  if stored then return string.match(stored, '^%["(%a+)","([^"]*)"') end
end

-- What opens the session is told from what follows it, and stays; the oldest turns go, each whole.
local most, most_opening = tonumber(ARGV[3]), tonumber(ARGV[4])
while first == opening + 1 and opening < most_opening and head(first) == 'system' do
  opening, first = first, first + 1
end
while opening + have - first + 1 > most do
  local cut = first + 1
  while cut <= have and head(cut) ~= 'user' do cut = cut + 1 end
  if cut > have then break end
  for number = first, cut - 1 do
    local _, id = head(number)
    redis.call('HDEL', key, string.format('m:%d', number), 'i:' .. (id or ''))
  end
  first = cut
end
redis.call('HSET', key, 'b', first, 's', opening)
return 1 + live_on(ARGV[2])
