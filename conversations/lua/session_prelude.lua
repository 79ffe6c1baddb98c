-- KEYS: a session's hash, its checkpoint, the index of its files. See session_memory.py.
local key = KEYS[1]

local function drop()
  redis.call('DEL', key)
  return -1
end

-- Return the named fields, or nil after deleting a key of another type.
local function header(...)
  local values = redis.pcall('HMGET', key, ...)
  if values.err then
    drop()
    return nil
  end
  return values
end

-- Let the session live on, and a checkpoint no shorter; return whether it has files.
local function live_on(seconds)
  redis.call('EXPIRE', key, seconds)
  local left = redis.call('TTL', KEYS[2])
  if left >= 0 and left < tonumber(seconds) then redis.call('EXPIRE', KEYS[2], seconds) end
  return redis.call('EXISTS', KEYS[3])
end
