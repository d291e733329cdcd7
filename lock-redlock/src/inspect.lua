-- Looks without changing anything.
-- KEYS: lock, and with fencing: fence. Answers {value, remaining ms (0: no end), fence}, or nil for a free lock.

local held = redis.call('GET', KEYS[1])
if not held then return false end
return {held, math.max(redis.call('PTTL', KEYS[1]), 0), KEYS[2] and redis.call('GET', KEYS[2]) or ''}
