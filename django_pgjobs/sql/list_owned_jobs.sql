-- List those of some attempts that still own their jobs.
-- A job that has what its task declares is no more owned by the attempt that was to give it that:
-- its claim may be that of another attempt by now.
-- Parameters: ids, claims bigint[]; fills boolean[]; of the same length
-- Returns: id
-- Locks: none
-- Index: pgjobs_job_live_pkey
SELECT job.id
FROM pgjobs_job_live AS job
JOIN unnest(%(ids)s::bigint[], %(claims)s::bigint[], %(fills)s::boolean[])
    AS attempt (id, claim, fills)
    ON attempt.id = job.id AND attempt.claim = job.claim AND NOT (attempt.fills AND job.is_declared)
WHERE job.id = ANY (%(ids)s::bigint[]) AND {job.runs}
