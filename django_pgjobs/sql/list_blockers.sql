-- List the sessions that keep another one waiting for a lock.
--
-- Of sessions of other roles a role without pg_read_all_stats is told the process, and little
-- else.
-- Parameters: pid integer (the session that waits)
-- Returns: pid; application name; state (NULL: not for us to see); seconds since its transaction
--     began (NULL: not for us to see); the beginning of its newest statement
-- Locks: none
-- Index: none
SELECT
    activity.pid, activity.application_name, activity.state,
    EXTRACT(EPOCH FROM clock_timestamp() - activity.xact_start)::double precision,
    left(activity.query, 200)
FROM pg_stat_activity AS activity
WHERE activity.pid = ANY (pg_blocking_pids(%(pid)s::integer))
ORDER BY activity.xact_start NULLS LAST, activity.pid
