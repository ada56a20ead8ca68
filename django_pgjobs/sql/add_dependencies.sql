-- Let new jobs wait for others; in the transaction that inserts them, or a worker claims them.
-- At its commit a trigger looks whether a predecessor has finished in the meantime.
-- Parameters: ids, predecessor_ids bigint[] (every one of the former waits for all of the
--     latter); after_failure text ('cancel', 'run' or 'hold')
-- Returns: nothing
-- Locks: the new rows; at the commit, for an instant, the predecessors' against their finish
-- Index: pgjobs_job_live_pkey
WITH edge AS (
    INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)
    SELECT predecessor.id, waiting.id, %(after_failure)s::text
    FROM pg_catalog.unnest(%(ids)s::bigint[]) AS waiting (id)
    CROSS JOIN pg_catalog.unnest(%(predecessor_ids)s::bigint[]) AS predecessor (id)
)
UPDATE pgjobs_job_live AS job
SET hold = 'dependencies', waits_for = cardinality(%(predecessor_ids)s::bigint[])
WHERE job.id = ANY (%(ids)s::bigint[]) AND job.status = 'ready'
