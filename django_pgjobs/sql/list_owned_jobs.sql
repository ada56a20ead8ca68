-- List those of some attempts that still own their jobs.
-- Parameters: ids, claims bigint[], of the same length
-- Returns: id
-- Locks: none
-- Index: pgjobs_job_live_pkey
SELECT job.id
FROM pgjobs_job_live AS job
JOIN unnest(%(ids)s::bigint[], %(claims)s::bigint[]) AS attempt (id, claim)
    ON attempt.id = job.id AND attempt.claim = job.claim
WHERE job.id = ANY (%(ids)s::bigint[]) AND {job.runs}
