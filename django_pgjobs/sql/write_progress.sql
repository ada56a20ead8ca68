-- Store what running attempts report of their progress, if they still own their jobs.
-- Parameters: ids, claims bigint[]; progress text with one JSON object per line
-- Returns: id of each job whose progress was stored
-- Locks: the rows, by primary key, SKIP LOCKED
-- Index: pgjobs_job_live_pkey
UPDATE pgjobs_job_live AS job
SET progress = report.progress::json
FROM unnest(
    %(ids)s::bigint[], %(claims)s::bigint[], string_to_array(%(progress)s::text, E'\n')
) AS report (id, claim, progress)
WHERE
    job.id = ANY ({ids.free})
    AND {job.runs}
    AND job.id = report.id AND job.claim = report.claim
RETURNING job.id
