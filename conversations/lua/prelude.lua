-- One key: the thread's hash. See conversation_memory.py for its fields and why this is right.
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

-- Take up the marks of early appends that now follow without a gap; return the version reached.
local function advance(version)
  while redis.call('HDEL', key, 'x:' .. string.format('%d', version + 1)) == 1 do
    version = version + 1
  end
  return version
end
