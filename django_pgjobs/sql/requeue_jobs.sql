-- Give finished jobs new attempts; their errors stay as history.
-- Parameters: ids bigint[]; run_after timestamptz or NULL; delay double precision (seconds) or
--     NULL; both NULL: at once; note text
-- Returns: id, queue_name
-- Locks: the rows, in order of id, SKIP LOCKED
-- Index: pgjobs_job_finished_pkey
WITH taken AS MATERIALIZED (
    SELECT
        job.id,
        COALESCE(
            %(run_after)s::timestamptz,
            statement_timestamp() + make_interval(secs => %(delay)s::double precision)
        ) AS run_after
    FROM pgjobs_job_finished AS job
    WHERE
        job.id = ANY (%(ids)s::bigint[])
        AND job.status IN ('successful', 'failed', 'cancelled')
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
)
UPDATE pgjobs_job AS job
SET
    status = 'ready',
    claim = job.claim + 1,
    attempts = 0,
    lost_count = 0,
    worker_ids = '{}',
    worker_id = NULL,
    started_at = NULL,
    last_attempted_at = NULL,
    finished_at = NULL,
    cancel_requested_at = NULL,
    result = NULL,
    progress = NULL,
    note = %(note)s::text,
    run_after = taken.run_after,
    due_at = CASE WHEN taken.run_after > statement_timestamp() THEN taken.run_after END
FROM taken
WHERE job.id = taken.id AND job.status IN ('successful', 'failed', 'cancelled')
RETURNING job.id, job.queue_name
