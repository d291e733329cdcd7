-- One node's vote: the lock, if it is free or already this claim's.
-- KEYS: lock, and with fencing: fence. ARGV: claim, round, ttl in ms, label with a colon before it (or empty).
-- Answers {1}, or with fencing {1, last token, whether this claim minted it, seconds, microseconds}; {0} for no.

-- Read before anything is written, so that a key of a wrong type leaves nothing behind.
local held = redis.call('GET', KEYS[1])
local fence = KEYS[2] and (redis.call('GET', KEYS[2]) or '')
local ttl = tonumber(ARGV[3])

if held then
  local claim, round = string.match(held, '^(%x+):(%d+)')
  -- A later round of this claim has been here: this request was late, and its undoing may be too.
  if claim ~= ARGV[1] or tonumber(round) > tonumber(ARGV[2]) then return {0} end
  ttl = math.max(ttl, redis.call('PTTL', KEYS[1]))
end
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. ARGV[2] .. ARGV[4], 'PX', string.format('%.0f', ttl))

if not fence then return {1} end
local last, minter = string.match(fence, '^(%d+) (%x+)$')
local time = redis.call('TIME')
return {1, tonumber(last or '0'), minter == ARGV[1] and 1 or 0, tonumber(time[1]), tonumber(time[2])}
