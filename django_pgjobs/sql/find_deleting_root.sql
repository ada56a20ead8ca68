-- Find the workflow of a finished job, if that is being deleted.
-- Parameters: job_id bigint
-- Returns: id; no row if it is not being deleted, or there is no such job
-- Locks: none
-- Index: pgjobs_job_finished_pkey, pgjobs_batch_pkey
SELECT root.id
FROM pgjobs_job_finished AS job
CROSS JOIN LATERAL (
    SELECT batch.root_id FROM pgjobs_batch AS batch WHERE batch.id = job.batch_id OFFSET 0
) AS batch
CROSS JOIN LATERAL (
    SELECT top.id
    FROM pgjobs_batch AS top
    WHERE top.id = batch.root_id AND top.deleting_at IS NOT NULL
    OFFSET 0
) AS root
-- Not IN: by that the planner may take the index of ends, and read all of it.
WHERE job.id = %(job_id)s::bigint AND job.status <> 'ready' AND job.status <> 'running'
