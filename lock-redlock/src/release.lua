-- Compare and delete. No command here is one that a full server refuses.
-- KEYS: lock. ARGV: claim, and to undo a round: its number, which leaves later rounds of the claim alone (or empty).
-- Answers 1, or 0 for no.

local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, #ARGV[1] + 1) ~= ARGV[1] .. ':' then return 0 end
if ARGV[2] ~= '' and tonumber(string.match(held, '^%x+:(%d+)')) > tonumber(ARGV[2]) then return 0 end
return redis.call('DEL', KEYS[1])
