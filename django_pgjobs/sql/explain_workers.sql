-- Tell which of the live workers would take a job of this backend, queue and task.
-- Parameters: backend, queue_name, task_path text; max_named integer
-- Returns: one row: how many workers live, serve the backend, serve also the queue, know also
--     the task, are also not asked to be quiet or to stop; the slots of those, the jobs that they
--     run; the names of *max_named* of those that know the task, those that claim first
-- Locks: none
-- Index: pgjobs_job_running
SELECT
    count(*),
    count(*) FILTER (WHERE live.serves_backend),
    count(*) FILTER (WHERE live.serves_queue),
    count(*) FILTER (WHERE live.knows_task),
    count(*) FILTER (WHERE live.knows_task AND live.is_awake),
    COALESCE(sum(live.slots) FILTER (WHERE live.knows_task AND live.is_awake), 0),
    COALESCE(sum(running.jobs) FILTER (WHERE live.knows_task AND live.is_awake), 0)::bigint,
    COALESCE(
        (array_agg(live.name ORDER BY NOT live.is_awake, live.id) FILTER (WHERE live.knows_task))
        [:%(max_named)s::integer],
        '{}'
    )
FROM (
    SELECT
        worker.id, worker.name, worker.slots,
        worker.quiet_requested_at IS NULL AND worker.stop_requested_at IS NULL AS is_awake,
        served.by_backend AS serves_backend,
        served.by_backend AND served.by_queue AS serves_queue,
        served.by_backend AND served.by_queue
        AND %(task_path)s::text = ANY (worker.task_paths) AS knows_task
    FROM pgjobs_worker AS worker
    CROSS JOIN LATERAL (
        SELECT
            %(backend)s::text = ANY (worker.backends) AS by_backend,
            (worker.queues IS NULL OR %(queue_name)s::text = ANY (worker.queues))
            AND %(queue_name)s::text <> ALL (worker.excluded_queues) AS by_queue
    ) AS served
    WHERE {worker.is_live}
) AS live
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM pgjobs_job_live AS job
    WHERE job.status = 'running' AND job.worker_id = live.id
) AS running
