-- List which of some jobs only a pause keeps from being claimed.
-- Parameters: ids bigint[]
-- Returns: id
-- Locks: none
-- Index: pgjobs_job_live_pkey
SELECT job.id
FROM pgjobs_job_live AS job
WHERE
    job.id = ANY (%(ids)s::bigint[])
    AND job.status = 'ready'
    AND job.hold IS NULL
    AND (job.due_at IS NULL OR job.due_at <= statement_timestamp())
    AND EXISTS (
        SELECT FROM pgjobs_pause AS pause
        WHERE {pause.holds} AND {pause.is_of_job}
    )
