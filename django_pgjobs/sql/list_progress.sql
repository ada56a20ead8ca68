-- Tell what running attempts have reported of their progress, if they still own their jobs.
-- Parameters: ids, claims bigint[], of the same length
-- Returns: id, claim; the report as JSON text or NULL; the time now; the seconds since the attempt
--     began
-- Locks: none
-- Index: pgjobs_job_live_pkey
SELECT
    job.id, job.claim, job.progress::text, statement_timestamp(),
    date_part('epoch', statement_timestamp())
    - date_part('epoch', COALESCE(job.last_attempted_at, statement_timestamp()))
FROM pgjobs_job_live AS job
JOIN unnest(%(ids)s::bigint[], %(claims)s::bigint[]) AS reporting (id, claim)
    ON reporting.id = job.id AND reporting.claim = job.claim
WHERE job.id = ANY (%(ids)s::bigint[]) AND {job.runs}
