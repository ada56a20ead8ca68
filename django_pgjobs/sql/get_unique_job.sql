-- Find the live job that keeps a unique key of a task occupied.
-- Parameters: unique_key, task_path text
-- Returns: id, status, claim
-- Locks: none
-- Index: pgjobs_job_unique
SELECT job.id, job.status, job.claim
FROM pgjobs_job_live AS job
WHERE
    job.unique_key = %(unique_key)s::text AND job.task_path = %(task_path)s::text
    AND {job.occupies_key}
