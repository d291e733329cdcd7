-- Restarts the ttl of a lock of which this claim is still a hold. It never shortens it.
-- KEYS: lock, claims, fence. ARGV: field of the owner, claim, ttl in ms, ttl of the fence in ms.
-- Answers 1, or 0 if the hold has ended.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
-- Where the whole set is gone (evicted), the field alone decides.
if redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 0 and redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local remaining = redis.call('PTTL', KEYS[1])
if remaining < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  remaining = ARGV[3]
end
redis.call('PEXPIRE', KEYS[2], remaining)
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return 1
