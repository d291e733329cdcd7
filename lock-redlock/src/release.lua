-- Compare and delete. No command here is one that a full server refuses.
-- KEYS: lock. ARGV: claim, and to undo a round: its number, which leaves later rounds of the claim alone (or empty).
-- Answers 1, or 0 for no.

local claim, round = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+):(%d+)')
if claim ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' and tonumber(round) > tonumber(ARGV[2]) then return 0 end
return redis.call('DEL', KEYS[1])
