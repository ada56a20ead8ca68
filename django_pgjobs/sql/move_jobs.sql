-- Give waiting jobs another queue, another priority, or both.
-- Parameters: ids bigint[]; queue_name text or NULL: as it is; priority smallint or NULL
-- Returns: id, queue_name
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
    queue_name = COALESCE(%(queue_name)s::text, job.queue_name),
    priority = COALESCE(%(priority)s::smallint, job.priority)
WHERE job.id = ANY (ARRAY(SELECT taken.id FROM taken)) AND job.status = 'ready'
RETURNING job.id, job.queue_name
