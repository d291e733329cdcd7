-- Restarts the ttl of a lock that is still this claim's. It never shortens it, and never makes the lock again.
-- KEYS: lock, and with fencing: fence. ARGV: claim, ttl in ms, ttl of the fence in ms, round that won the lock.
-- Answers 1, or 0 for no.

local claim, round, label = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+):(%d+)(.*)$')
if claim ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if tonumber(round) < tonumber(ARGV[4]) then
  -- The vote of a lost round that landed late. It counts from here on, so the undoing of lost rounds must leave it alone.
  redis.call('SET', KEYS[1], claim .. ':' .. ARGV[4] .. label, 'KEEPTTL')
end
if KEYS[2] then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
return 1
