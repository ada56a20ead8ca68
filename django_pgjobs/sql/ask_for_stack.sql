-- Ask the worker of a running job where the job is: it writes the stack into the row.
-- Parameters: job_id bigint
-- Returns: job_id, if it runs and its worker is live
-- Locks: the row of the question
-- Index: pgjobs_job_live_pkey
INSERT INTO pgjobs_stack AS asked (job_id, claim, worker_id)
SELECT job.id, job.claim, job.worker_id
FROM pgjobs_job_live AS job
JOIN pgjobs_worker AS worker ON worker.id = job.worker_id
WHERE job.id = %(job_id)s::bigint AND {job.runs} AND {worker.is_live}
    -- Nobody here sees where one over HTTP is.
    AND worker.token_id IS NULL
ON CONFLICT (job_id) DO UPDATE
SET
    claim = excluded.claim, worker_id = excluded.worker_id,
    requested_at = excluded.requested_at, written_at = NULL, stack = ''
RETURNING asked.job_id
