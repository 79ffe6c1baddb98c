-- Deletes files of a session: those named, or all. They stand in the slot of KEYS: its index of
-- files and its newest file. ARGV: what the files' keys begin with, ids. Returns how many there were.
local ids = {unpack(ARGV, 2)}
local every = #ids == 0
if every then ids = redis.call('HKEYS', KEYS[1]) end
local deleted, newest = 0, redis.call('GET', KEYS[2])
for _, id in ipairs(ids) do
  deleted = deleted + redis.call('DEL', ARGV[1] .. id)
  redis.call('HDEL', KEYS[1], id)
  if id == newest then redis.call('DEL', KEYS[2]) end
end
if every then redis.call('DEL', KEYS[1], KEYS[2]) end
return deleted
