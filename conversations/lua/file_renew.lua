-- Lets all files of a session live on. They stand in the slot of KEYS: its index of files and its
-- newest file. ARGV: seconds to live, what the files' keys begin with. Returns how many there are.
local files = 0
for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
  if redis.call('EXPIRE', ARGV[2] .. id, ARGV[1]) == 1 then
    files = files + 1
  else
    redis.call('HDEL', KEYS[1], id)
  end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[1])
return files
