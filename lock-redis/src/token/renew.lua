-- Restarts the ttl of a lock that is still ours. It never shortens it: a late request may be an old one.
-- KEYS: lock, fence. ARGV: value of the claim, ttl in ms, ttl of the fence in ms.
-- Answers 1, or 0 if the lock is not ours.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
