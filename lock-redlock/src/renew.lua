-- Restarts the ttl of a lock that is still this claim's. It never shortens it, and never makes the lock again.
-- KEYS: lock, and with fencing: fence. ARGV: claim, ttl in ms, ttl of the fence in ms.
-- Answers 1, or 0 for no.

local held = redis.call('GET', KEYS[1])
if not held or string.match(held, '^%x+') ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if KEYS[2] then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
return 1
