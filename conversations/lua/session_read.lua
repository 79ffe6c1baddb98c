-- ARGV: owner, seconds to live, how many of the newest messages, or 0 for all. Returns whether
-- there are files, how many fields, the first of them, and the messages that opened the session
-- with the newest. Only its owner's reading lets a session live on.
local h = header('f', 'o', 'meta', 'n', 's', 'b', 'c')
if not h then return {0, 0, {false, false, false, false, false, false, false}, {}} end
local files, fields = 0, {}
if h[4] and h[2] == ARGV[1] then files = live_on(ARGV[2]) end
local newest, opening, first = tonumber(h[4] or ''), tonumber(h[5] or ''), tonumber(h[6] or '')
-- Where that is more than there can be, it is no copy.
if newest and opening and first and opening + newest - first < redis.call('HLEN', key) then
  for number = 1, opening do fields[#fields + 1] = string.format('m:%d', number) end
  if ARGV[3] ~= '0' then first = math.max(first, newest - tonumber(ARGV[3]) + 1) end
  for number = first, newest do fields[#fields + 1] = string.format('m:%d', number) end
end
local messages = {}
for i = 1, #fields, 1000 do  -- Lua can't unpack thousands at once
  local some = redis.call('HMGET', key, unpack(fields, i, math.min(i + 999, #fields)))
  for _, message in ipairs(some) do messages[#messages + 1] = message end
end
return {files, redis.call('HLEN', key), h, messages}
