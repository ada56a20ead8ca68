-- Leave the watch: let go of its lock, and tell workers that do not wait for it.
-- Parameters: channel text
-- Returns: nothing of use
-- Locks: PostgreSQL's notification queue, at commit
-- Index: none
SELECT
    pg_advisory_unlock_all(),
    set_config('idle_session_timeout', '0', FALSE),
    pg_notify(%(channel)s::text, '')
