-- One step: take the lock, or find it taken by the same claim, and mint the fencing token.
-- KEYS: lock, fence. ARGV: value of the claim, ttl in ms, ttl of the fence in ms.
-- Answers the fencing token; or, if another holds the lock, minus its remaining ms (0: it has no ttl).

local function keep(token)
  -- Lua's own number format would round a token to 14 digits.
  return redis.pcall('SET', KEYS[2], string.format('%.0f', token), 'PX', ARGV[3], 'GET')
end

-- The greater of the last token plus one and the server's clock. Nearly always the clock is ahead, so it is written first,
-- and the answer says what was there.
local function mint()
  local time = redis.call('TIME')
  local token = time[1] * 1000000 + time[2]
  local last = keep(token)
  if type(last) == 'table' then
    -- A key of another type. The lock must not stay behind without a token.
    redis.call('DEL', KEYS[1])
    return last
  end
  last = tonumber(last or 0) or 0
  if token <= last then
    token = last + 1
    keep(token)
  end
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
local last = tonumber(redis.call('GET', KEYS[2]) or 0) or 0
if last == 0 then return mint() end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return last
