-- Leave the watch: let go of its slot, and tell workers that wait for none.
-- Parameters: channel text
-- Returns: nothing of use
-- Locks: PostgreSQL's notification queue, at commit
-- Index: none
SELECT pg_advisory_unlock_all(), pg_notify(%(channel)s::text, '')
