-- ARGV: version, epoch. Drop a copy that is behind, and a lease that may have read too early.
local h = header('v', 'lease', 'e')
if not h then return -1 end
if not h[1] and not h[2] then return 0 end
local have = tonumber(h[1] or '')
if not have or have < tonumber(ARGV[1]) or h[3] ~= ARGV[2] then return drop() end
return 1
