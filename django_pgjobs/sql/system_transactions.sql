-- List the oldest transactions of this database, which keep vacuum from cleaning up.
--
-- Texts of statements are left out: they may hold what nobody else is to read. Of sessions of
-- other roles a role without pg_read_all_stats is told the process, and little else.
-- Parameters: max_transactions integer
-- Returns: pid; application, role, state (NULL: not for us to see); seconds since it began (NULL:
--     not for us to see); seconds since its last statement began; what it waits for
-- Locks: none
-- Index: none
SELECT
    activity.pid, activity.application_name, activity.usename::text, activity.state,
    EXTRACT(EPOCH FROM clock_timestamp() - activity.xact_start)::double precision,
    EXTRACT(EPOCH FROM clock_timestamp() - activity.query_start)::double precision,
    activity.wait_event
FROM pg_stat_activity AS activity
WHERE
    activity.datname = current_database() AND activity.pid <> pg_backend_pid()
    AND (activity.xact_start IS NOT NULL OR activity.backend_xmin IS NOT NULL)
ORDER BY activity.xact_start NULLS LAST, activity.pid
LIMIT %(max_transactions)s::integer
