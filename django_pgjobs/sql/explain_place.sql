-- Count the jobs that go before one that may start: those of its queue and kind (threads or
-- event loop) with a better place, as far as they have the same keys or none.
--
-- Bounds instead of equality, and an order: on Django's connection the planner is free to choose,
-- and would walk the primary key if that gave the order as well.
-- Parameters: id bigint; max_jobs integer
-- Returns: one row: how many of them are not paused, were there more than *max_jobs*?
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_ready, pgjobs_job_ready_lanes
SELECT
    count(*) FILTER (WHERE before.task_path NOT IN (
        SELECT pause.name
        FROM pgjobs_pause AS pause
        WHERE pause.kind = 'task' AND {pause.holds}
    )),
    count(*) > %(max_jobs)s::integer
FROM pgjobs_job_live AS job
CROSS JOIN LATERAL (
    (
        SELECT plain.task_path
        FROM pgjobs_job_live AS plain
        WHERE
            {plain.is_ready} AND {plain.is_walked} AND plain.lane IS NULL
            AND plain.backend = job.backend AND plain.queue_name = job.queue_name
            AND plain.is_async = job.is_async
            -- Those of the same priority take turns with a job that has keys.
            AND (-plain.priority, plain.id)
            < (-job.priority, CASE WHEN job.lane IS NULL THEN job.id ELSE 0 END)
        ORDER BY -plain.priority, plain.id
        LIMIT %(max_jobs)s::integer + 1
    )
    UNION ALL
    (
        SELECT earlier.task_path
        FROM pgjobs_job_live AS earlier
        WHERE
            {earlier.is_ready} AND {earlier.is_walked} AND earlier.lane IS NOT NULL
            AND earlier.backend = job.backend AND earlier.queue_name = job.queue_name
            AND earlier.is_async = job.is_async
            AND -earlier.priority = -job.priority
            AND earlier.lane >= job.lane AND (earlier.lane, earlier.id) < (job.lane, job.id)
        ORDER BY earlier.lane, earlier.id
        LIMIT %(max_jobs)s::integer + 1
    )
) AS before
WHERE job.id = %(id)s::bigint AND job.status = 'ready'
