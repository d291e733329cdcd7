-- One step: take the lock, or find it taken by the same claim, and mint the fencing token.
-- KEYS: lock, fence. ARGV: value of the claim, ttl in ms, ttl of the fence in ms.
-- Answers the fencing token; or, if another holds the lock, minus its remaining ms (0: it has no ttl).

-- Read before anything is written, so that a key of a wrong type leaves nothing behind.
local last = tonumber(redis.call('GET', KEYS[2]) or '0') or 0

local function mint()
  local time = redis.call('TIME')
  local token = math.max(last + 1, time[1] * 1000000 + time[2])
  -- Lua's own number format would round a token to 14 digits.
  redis.call('SET', KEYS[2], string.format('%.0f', token), 'PX', ARGV[3])
  return token
end

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return mint()
end

local remaining = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  if remaining < 0 then return 0 end
  return -math.max(remaining, 1)
end

-- Our own grant, whose reply was lost.
if remaining < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if last == 0 then return mint() end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return last
