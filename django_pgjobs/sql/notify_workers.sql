-- Wake the workers of some queues when the transaction commits.
-- Parameters: channel text; queue_names text[]
-- Returns: one row per queue
-- Locks: PostgreSQL's notification queue, at commit
-- Index: none
SELECT pg_notify(%(channel)s::text, queue_name)
FROM pg_catalog.unnest(%(queue_names)s::text[]) AS queue_name
