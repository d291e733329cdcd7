-- Ends one hold; the last one frees the lock. The lease of what remains is left as it is.
-- KEYS: lock, claims. ARGV: field of the owner, claim, channel (empty: tell nobody), 1 if the set of claims alone
-- decides, PUBLISH or SPUBLISH.
-- Answers 1, or 0 if this claim holds nothing.

local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if count == 0 then return 0 end

local known = redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 1
-- Where the whole set is gone (evicted), the field alone decides, unless the claim may never have counted.
if not known and (ARGV[4] == '1' or redis.call('EXISTS', KEYS[2]) == 1) then return 0 end

if count > 1 then
  -- SREM comes first: a full server lets a script that has written go on, but would refuse one that begins with HINCRBY.
  redis.call('SREM', KEYS[2], ARGV[2])
  redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
  return 1
end
-- Nobody can act on the message before the script ends; a refused PUBLISH comes while the lock is still whole.
if ARGV[3] ~= '' then redis.call(ARGV[5], ARGV[3], '0') end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
