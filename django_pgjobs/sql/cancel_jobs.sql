-- Cancel jobs: one that waits ends at once, one that runs is asked to end.
-- Parameters: ids bigint[]
-- Returns: id, status before
-- Locks: the rows, in order of id, SKIP LOCKED
-- Index: pgjobs_job_live_pkey
WITH taken AS MATERIALIZED (
    SELECT job.id, job.status
    FROM pgjobs_job_live AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.status IN ('ready', 'running')
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
)
UPDATE pgjobs_job AS job
SET
    status = CASE WHEN job.status = 'ready' THEN 'cancelled' ELSE job.status END,
    finished_at = CASE WHEN job.status = 'ready' THEN statement_timestamp() END,
    claim = CASE WHEN job.status = 'ready' THEN job.claim + 1 ELSE job.claim END,
    cancel_requested_at = COALESCE(job.cancel_requested_at, statement_timestamp())
FROM taken
WHERE job.id = taken.id AND job.status IN ('ready', 'running')
RETURNING job.id, taken.status
