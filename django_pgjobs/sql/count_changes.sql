-- Count what was ever written to the tables that decide which jobs with keys may start. While
-- the number stays, a walk that found nothing would find nothing again. The server counts
-- rolled back writes as well. It tells of a session's writes between its transactions: at once
-- if it told of none in the last second, else after ten seconds without a transaction.
-- Parameters: none
-- Returns: one row: the number; NULL if it says nothing, because the server does not count (or
--     is older than 15, where the counts are read from a file), or because a pause will end or
--     tokens will come back without a write
-- Locks: none
-- Index: none
SELECT CASE
    WHEN
        current_setting('server_version_num')::integer >= 150000
        AND current_setting('track_counts')::boolean
        AND NOT EXISTS (
            SELECT FROM pgjobs_pause AS pause WHERE pause.resume_at > statement_timestamp()
        )
        AND NOT EXISTS (
            SELECT FROM pgjobs_rate_state AS state WHERE state.next_free > statement_timestamp()
        )
        THEN (
            SELECT sum(
                pg_stat_get_tuples_inserted(watched.id) + pg_stat_get_tuples_updated(watched.id)
                + pg_stat_get_tuples_deleted(watched.id)
            )::bigint
            FROM (
                VALUES
                ('pgjobs_job_live'::regclass), ('pgjobs_concurrency_limit'::regclass),
                ('pgjobs_queue_settings'::regclass), ('pgjobs_pause'::regclass),
                ('pgjobs_rate_limit'::regclass), ('pgjobs_rate_state'::regclass)
            ) AS watched (id)
        )
END
