-- Puts a whole file in place, so that a reader sees the one before, or all of this one.
-- KEYS: the unfinished file, the file, the session's newest file, its index of files.
-- ARGV: file id, number of pages, head, seconds to live, bytes. 1 = done, 0 = pages are missing.
if redis.call('HLEN', KEYS[1]) ~= tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[1])
  return 0
end
redis.call('HSET', KEYS[1], 'm', ARGV[3])
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('SET', KEYS[3], ARGV[1], 'EX', ARGV[4])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[5])
redis.call('EXPIRE', KEYS[4], ARGV[4])
return 1
