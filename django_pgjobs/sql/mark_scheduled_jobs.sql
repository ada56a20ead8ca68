-- Write into jobs that this transaction has enqueued which schedule they are of.
-- Parameters: ids bigint[]; schedules text[]; instants timestamptz[], an element for each
-- Returns: nothing
-- Locks: the jobs, which are the transaction's own
-- Index: pgjobs_job_live_pkey
UPDATE pgjobs_job_live AS job
SET schedule = given.schedule, scheduled_for = given.instant
FROM unnest(
    %(ids)s::bigint[], %(schedules)s::text[], %(instants)s::timestamptz[]
) AS given (id, schedule, instant)
WHERE
    job.id = ANY (%(ids)s::bigint[]) AND job.id = given.id
    -- Not "status = 'ready'": that would let the planner walk an index of ready jobs.
    AND job.status IN ('ready', 'running') AND job.status <> 'running'
