-- Read the status of the jobs that a new one is to wait for.
-- Parameters: ids bigint[]
-- Returns: id, status of each that exists
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey
SELECT job.id, job.status
FROM pgjobs_job AS job
WHERE job.id = ANY (%(ids)s::bigint[])
