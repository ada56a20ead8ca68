-- Read where a job is, for who wants to claim just this one.
-- Parameters: id bigint
-- Returns: can it run now?, claim and worker_id if it runs, else NULL; backend, queue_name, minus the
--     priority, is_async, the lane (NULL for a job without keys), task_path
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey
SELECT
    {job.is_ready},
    CASE WHEN job.status = 'running' THEN job.claim END,
    CASE WHEN job.status = 'running' THEN job.worker_id END,
    job.backend, job.queue_name, -job.priority, job.is_async, job.lane, job.task_path
FROM pgjobs_job AS job
WHERE job.id = %(id)s::bigint
