-- List the jobs that a worker runs, the oldest first.
-- Parameters: worker_id bigint; max_jobs integer; detailed boolean, detailed_paths text[] as
--     claim_jobs.sql has them
-- Returns: as list_assigned.sql
-- Locks: none
-- Index: pgjobs_job_running
SELECT
    {job.as_claimed_row},
    {job.as_run}
FROM pgjobs_job_live AS job
WHERE job.status = 'running' AND job.worker_id = %(worker_id)s::bigint
ORDER BY job.id
LIMIT %(max_jobs)s::integer
