-- ARGV: version, epoch. Drop a copy that is behind, and a lease that may have read too early.
local h = header('v', 'lease', 'e')
if not h then return -1 end
local have = tonumber(h[1] or '')
if (have and (have < tonumber(ARGV[1]) or h[3] ~= ARGV[2])) or (not have and h[2]) then
  redis.call('DEL', key)
  return -1
end
return 1
