-- Redisson's acquire (a hash of one field, the owner, whose value counts the holds), made idempotent by a set of claims
-- beside it: a claim counts only if it is new to the set.
-- KEYS: lock, claims, fence. ARGV: field of the owner, claim, ttl in ms, ttl of the fence in ms.
-- Answers the fencing token; or, if another owner holds the lock, minus its remaining ms (0: it has no ttl).

local last = tonumber(redis.call('GET', KEYS[3]) or '0') or 0
local ttl = tonumber(ARGV[3])

local function mint()
  local time = redis.call('TIME')
  local token = math.max(last + 1, time[1] * 1000000 + time[2])
  redis.call('SET', KEYS[3], string.format('%.0f', token), 'PX', ARGV[4])
  return token
end

if redis.call('HLEN', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ttl)
  -- What is left of an earlier hold that expired, or that another client forced away.
  redis.call('DEL', KEYS[2])
  redis.call('SADD', KEYS[2], ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ttl)
  return mint()
end

local remaining = redis.call('PTTL', KEYS[1])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  if remaining < 0 then return 0 end
  return -math.max(remaining, 1)
end

if redis.call('SADD', KEYS[2], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
end
-- Another hold of this owner may have a longer lease.
if remaining < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
  remaining = ttl
end
redis.call('PEXPIRE', KEYS[2], remaining)
if last == 0 then return mint() end
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return last
