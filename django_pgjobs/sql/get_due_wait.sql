-- Find out when the next job is due: for the clock of tests.
-- Parameters: now timestamptz (what counts as that)
-- Returns: one row: seconds until then, negative if it was before; NULL if none waits for a time
-- Locks: none
-- Index: pgjobs_job_due
SELECT (
    SELECT date_part('epoch', job.due_at) - date_part('epoch', %(now)s::timestamptz)
    FROM pgjobs_job_live AS job
    WHERE job.status = 'ready' AND job.due_at IS NOT NULL AND job.due_at < 'infinity'
    ORDER BY job.due_at
    LIMIT 1
)
