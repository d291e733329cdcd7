-- Puts a fencing token down, if the lock is still this claim's and no other claim has got as far.
-- KEYS: lock, fence. ARGV: claim, token, ttl of the fence in ms.
-- Answers 1, or 0 for no.

local held = redis.call('GET', KEYS[1])
if not held or string.match(held, '^%x+') ~= ARGV[1] then return 0 end
local last, minter = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (%x+)$')
if last and tonumber(last) >= tonumber(ARGV[2]) then
  -- A token never falls, and no two claims share one.
  return (minter == ARGV[1] and tonumber(last) == tonumber(ARGV[2])) and 1 or 0
end
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[1], 'PX', ARGV[3])
return 1
