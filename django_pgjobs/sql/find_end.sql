-- Find how an attempt has ended its job. Whatever else changes a running job raises its claim.
-- Parameters: id, claim bigint
-- Returns: status
-- Locks: none
-- Index: pgjobs_job_finished_pkey
SELECT job.status
FROM pgjobs_job_finished AS job
WHERE job.id = %(id)s::bigint AND job.claim = %(claim)s::bigint
