-- Move waiting jobs to another time.
-- Parameters: ids bigint[]; run_after timestamptz or NULL; delay double precision (seconds) or
--     NULL; both NULL: now
-- Returns: id, queue_name
-- Locks: the rows, in order of id, SKIP LOCKED
-- Index: pgjobs_job_live_pkey
WITH taken AS MATERIALIZED (
    SELECT
        job.id,
        COALESCE(
            %(run_after)s::timestamptz,
            statement_timestamp() + make_interval(secs => %(delay)s::double precision)
        ) AS run_after
    FROM pgjobs_job_live AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.status = 'ready'
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
)
UPDATE pgjobs_job_live AS job
SET
    run_after = taken.run_after,
    due_at = CASE WHEN taken.run_after > statement_timestamp() THEN taken.run_after END
FROM taken
WHERE job.id = taken.id AND job.status = 'ready'
RETURNING job.id, job.queue_name
