-- Deletes a lock, whoever holds it.
-- KEYS: lock, and what else belongs to the hold. ARGV: channel (empty: tell nobody), PUBLISH or SPUBLISH.
-- Answers 1, or 0 if the lock was free.

if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[1] ~= '' then redis.call(ARGV[2], ARGV[1], '0') end
redis.call('DEL', unpack(KEYS))
return 1
