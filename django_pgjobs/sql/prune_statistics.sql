-- Delete statistics that are older than they are kept, and samples: those of every minute after
-- *dense* seconds, but for one an hour, which stay as long as statistics, at most *sparse* seconds.
-- Parameters: retention, dense, sparse double precision (seconds); max_rows integer (of each)
-- Returns: how many rows were deleted
-- Locks: those rows
-- Index: pgjobs_statistic_begin, pgjobs_statistic_sum_begin, pgjobs_queue_sample_measured
WITH gone AS (
    DELETE FROM pgjobs_statistic AS statistic
    WHERE statistic.id = ANY (ARRAY(
        SELECT old.id
        FROM pgjobs_statistic AS old
        WHERE
            {old.is_of_any_period}
            AND old.begins_at
            < statement_timestamp() - make_interval(secs => %(retention)s::double precision)
        LIMIT %(max_rows)s::integer
    ))
    RETURNING statistic.id
),
gone_sums AS (
    DELETE FROM pgjobs_statistic_sum AS summed
    WHERE summed.id = ANY (ARRAY(
        SELECT old.id
        FROM pgjobs_statistic_sum AS old
        WHERE
            {old.is_of_any_period}
            AND old.begins_at
            < statement_timestamp() - make_interval(secs => %(retention)s::double precision)
        LIMIT %(max_rows)s::integer
    ))
    RETURNING summed.id
),
thinned AS (
    DELETE FROM pgjobs_queue_sample AS sample
    WHERE sample.id = ANY (ARRAY(
        SELECT old.id
        FROM pgjobs_queue_sample AS old
        WHERE
            old.measured_at
            < statement_timestamp() - make_interval(secs => %(dense)s::double precision)
            -- Without it nobody would know what is counted.
            AND old.counted_job_id IS NULL
            AND (
                old.measured_at > (
                    SELECT first.measured_at
                    FROM pgjobs_queue_sample AS first
                    WHERE first.measured_at >= date_trunc('hour', old.measured_at, 'UTC')
                    ORDER BY first.measured_at
                    LIMIT 1
                )
                OR old.measured_at < statement_timestamp() - make_interval(
                    secs => LEAST(%(sparse)s::double precision, %(retention)s::double precision)
                )
            )
        LIMIT %(max_rows)s::integer
    ))
    RETURNING sample.id
)
SELECT
    (SELECT count(*) FROM gone) + (SELECT count(*) FROM gone_sums)
    + (SELECT count(*) FROM thinned)
