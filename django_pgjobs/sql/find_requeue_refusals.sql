-- Find out which finished jobs of workflows are not requeued by themselves, and why.
-- Parameters: ids bigint[]
-- Returns: id, batch_id, is_deleting (its workflow; else its batch was cancelled); no row of a job
--     that neither keeps, or that is not there
-- Locks: none
-- Index: pgjobs_job_finished_pkey, pgjobs_batch_pkey
SELECT job.id, batch.id, root.is_deleting
FROM pgjobs_job_finished AS job
CROSS JOIN LATERAL (
    SELECT one.id, one.root_id, one.cancel_requested_at IS NOT NULL AS is_cancelled
    FROM pgjobs_batch AS one
    WHERE one.id = job.batch_id
    OFFSET 0
) AS batch
CROSS JOIN LATERAL (
    SELECT top.deleting_at IS NOT NULL AS is_deleting
    FROM pgjobs_batch AS top
    WHERE top.id = batch.root_id
    OFFSET 0
) AS root
WHERE
    -- Not IN: by that the planner may take the index of ends, and read all of it.
    job.id = ANY (%(ids)s::bigint[]) AND job.status <> 'ready' AND job.status <> 'running'
    AND (root.is_deleting OR batch.is_cancelled)
