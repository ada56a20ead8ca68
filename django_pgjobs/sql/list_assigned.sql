-- List the jobs that are still run under some claims.
-- Parameters: ids, claims bigint[], of the same length; detailed boolean, detailed_paths text[] as
--     claim_jobs.sql has them
-- Returns: as claim_jobs.sql; then the seconds since the attempt began, is it to be cancelled?
-- Locks: none
-- Index: pgjobs_job_live_pkey
SELECT
    {job.as_claimed_row},
    {job.as_run}
FROM pgjobs_job_live AS job
JOIN unnest(%(ids)s::bigint[], %(claims)s::bigint[]) AS assigned (id, claim)
    ON assigned.id = job.id AND assigned.claim = job.claim
WHERE job.id = ANY (%(ids)s::bigint[]) AND {job.runs}
