-- Let waiting jobs begin to count their attempts again; their errors stay as history.
-- Parameters: ids bigint[]
-- Returns: id
-- Locks: the rows, in order of id, SKIP LOCKED
-- Index: pgjobs_job_live_pkey
WITH taken AS MATERIALIZED (
    SELECT job.id
    FROM pgjobs_job_live AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.status = 'ready'
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
)
UPDATE pgjobs_job_live AS job
SET
    attempts = 0,
    lost_count = 0,
    interruptions = 0,
    started_at = NULL
WHERE job.id = ANY (ARRAY(SELECT taken.id FROM taken)) AND job.status = 'ready'
RETURNING job.id
