-- List the running jobs of a worker that somebody asked to cancel.
-- Parameters: worker_id bigint
-- Returns: id
-- Locks: none
-- Index: pgjobs_job_cancelling
SELECT job.id
FROM pgjobs_job_live AS job
WHERE
    job.status = 'running' AND job.cancel_requested_at IS NOT NULL
    AND job.worker_id = %(worker_id)s::bigint
