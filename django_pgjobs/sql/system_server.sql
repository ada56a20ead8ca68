-- Describe the server, and what else keeps vacuum from cleaning up.
-- Parameters: none
-- Returns: one row: version, database, role; the time now; is it a standby?; sessions of this
--     database, max_connections; share of the notification queue in use; prepared transactions
--     of this database; replication slots that hold an old snapshot;
--     autovacuum, synchronous_commit, default_transaction_isolation, TimeZone,
--     idle_in_transaction_session_timeout; when the oldest successful, failed and cancelled job
--     ended (NULL: there is none)
-- Locks: none
-- Index: pgjobs_job_by_end
SELECT
    current_setting('server_version'), current_database()::text, current_user::text,
    clock_timestamp(), pg_is_in_recovery(),
    (SELECT count(*) FROM pg_stat_activity AS session WHERE session.datname = current_database()),
    current_setting('max_connections')::integer,
    pg_notification_queue_usage(),
    (
        SELECT count(*) FROM pg_prepared_xacts AS entry WHERE entry.database = current_database()
    ),
    (SELECT count(*) FROM pg_replication_slots AS slot WHERE slot.xmin IS NOT NULL),
    current_setting('autovacuum'), current_setting('synchronous_commit'),
    current_setting('default_transaction_isolation'), current_setting('TimeZone'),
    current_setting('idle_in_transaction_session_timeout'),
    finished.successful_at, finished.failed_at, finished.cancelled_at
FROM (
    SELECT
        (
            SELECT {job.finished_at.in_calendar}
            FROM pgjobs_job_finished AS job
            WHERE job.status = 'successful' AND job.finished_at IS NOT NULL
            ORDER BY job.finished_at
            LIMIT 1
        ) AS successful_at,
        (
            SELECT {job.finished_at.in_calendar}
            FROM pgjobs_job_finished AS job
            WHERE job.status = 'failed' AND job.finished_at IS NOT NULL
            ORDER BY job.finished_at
            LIMIT 1
        ) AS failed_at,
        (
            SELECT {job.finished_at.in_calendar}
            FROM pgjobs_job_finished AS job
            WHERE job.status = 'cancelled' AND job.finished_at IS NOT NULL
            ORDER BY job.finished_at
            LIMIT 1
        ) AS cancelled_at
) AS finished
