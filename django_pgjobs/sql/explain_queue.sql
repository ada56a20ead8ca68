-- Tell how many jobs of a queue run, if that is limited over all workers.
-- Parameters: queue_name text; max_named integer
-- Returns: one row if it is: how many may run, how many do, the ids of *max_named* of them
-- Locks: none
-- Index: pgjobs_job_running
SELECT queue.max_running, running.jobs, running.ids
FROM pgjobs_queue_settings AS queue
CROSS JOIN LATERAL (
    SELECT
        count(*) AS jobs,
        (array_agg(job.id ORDER BY job.id))[:%(max_named)s::integer] AS ids
    FROM pgjobs_job_live AS job
    WHERE job.status = 'running' AND job.queue_name = queue.queue_name
) AS running
WHERE queue.queue_name = %(queue_name)s::text AND queue.max_running IS NOT NULL
