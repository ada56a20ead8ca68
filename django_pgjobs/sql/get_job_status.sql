-- Read the status of one job.
-- Parameters: id bigint
-- Returns: status, or no row
-- Locks: none
-- Index: pgjobs_job_live_pkey
SELECT job.status FROM pgjobs_job AS job WHERE job.id = %(id)s::bigint
