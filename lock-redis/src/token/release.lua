-- Compare and delete. No command here is one that a full server refuses.
-- KEYS: lock. ARGV: value of the claim, channel (empty: tell nobody), PUBLISH or SPUBLISH.
-- Answers 1, or 0 if the lock is not ours.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
-- Nobody can act on the message before the script ends; a refused PUBLISH comes while the lock is still whole.
if ARGV[2] ~= '' then redis.call(ARGV[3], ARGV[2], '0') end
redis.call('DEL', KEYS[1])
return 1
