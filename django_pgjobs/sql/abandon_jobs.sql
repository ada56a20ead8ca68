-- Let jobs be nobody's that a worker over HTTP runs and names no more: the next rescue takes them
-- and counts the loss. Until then an outcome of theirs may still be written.
-- Parameters: ids, claims bigint[]; worker_id bigint
-- Returns: id of each
-- Locks: the rows, by primary key, SKIP LOCKED
-- Index: pgjobs_job_live_pkey
UPDATE pgjobs_job_live AS job
SET worker_id = NULL
FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[]) AS silent (id, claim)
WHERE
    job.id = ANY ({ids.free})
    AND {job.runs}
    AND job.id = silent.id AND job.claim = silent.claim
    AND job.worker_id = %(worker_id)s::bigint
RETURNING job.id
