-- Deletes a lock, whoever holds it.
-- KEYS: lock. Answers 1, or 0 if it was free.

return redis.call('DEL', KEYS[1])
