-- Give keys that have none a state: all tokens are free.
-- Parameters: keys text[]
-- Returns: nothing
-- Locks: the new rows, in order of key
-- Index: none
INSERT INTO pgjobs_rate_state (key, next_free)
SELECT wanted.key, clock_timestamp()
FROM pg_catalog.unnest(%(keys)s::text[]) AS wanted (key)
ORDER BY wanted.key
ON CONFLICT (key) DO NOTHING
