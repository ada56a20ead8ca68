-- List the (backend, queue) pairs that have jobs which may run now: one index probe for each.
-- Parameters: none
-- Returns: backend, queue_name
-- Locks: none
-- Index: pgjobs_job_ready
WITH RECURSIVE lane AS (
    (
        SELECT job.backend, job.queue_name
        FROM pgjobs_job_live AS job
        WHERE job.status = 'ready' AND job.due_at IS NULL
        ORDER BY job.backend, job.queue_name
        LIMIT 1
    )
    UNION ALL
    SELECT following.backend, following.queue_name
    FROM lane
    CROSS JOIN LATERAL (
        SELECT job.backend, job.queue_name
        FROM pgjobs_job_live AS job
        WHERE
            job.status = 'ready' AND job.due_at IS NULL
            AND (job.backend, job.queue_name) > (lane.backend, lane.queue_name)
        ORDER BY job.backend, job.queue_name
        LIMIT 1
    ) AS following
)
SELECT backend, queue_name FROM lane
