-- Read what one job says of itself, of the worker that holds it, and what keeps jobs of its queue,
-- its task and its key from being claimed.
-- Parameters: id bigint; max_named integer
-- Returns: id, status, backend, queue_name, task_path, hold, concurrency_key, rate_limit_keys,
--     rate_cost, attempts, how many there may be (those lost included), run_after, due_at, expires_at, finished_at, last_attempted_at,
--     cancel_requested_at, note, priority, what it says of when it starts as JSON text if it may lack what its
--     task declares, else NULL; class of the newest exception and the begin of its message, or NULL; name of the worker or
--     NULL, the end of its lease or NULL; the time now; as JSON texts: the pauses that keep it
--     from being claimed, each [kind, name, reason, paused_by, paused_at, resume_at], and how full
--     its queue is, [how many may run over all workers, how many do, the ids of *max_named* of
--     them], or NULL without a limit
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey, pgjobs_job_running
SELECT
    job.id, job.status, job.backend, job.queue_name, job.task_path, job.hold,
    job.concurrency_key, job.rate_limit_keys, job.rate_cost, job.attempts,
    job.max_attempts::bigint + job.lost_count,
    job.run_after, job.due_at, job.expires_at, job.finished_at, job.last_attempted_at, job.cancel_requested_at,
    job.note, job.priority, {job.as_undeclared}, job.errors -> -1 ->> 'exception_class'::text,
    left(job.errors -> -1 ->> 'message'::text, 300),
    worker.name, CASE WHEN worker.ended_at IS NULL THEN worker.lease_expires_at END,
    statement_timestamp(),
    (
        SELECT json_agg(
            json_build_array(
                pause.kind, pause.name, pause.reason, pause.paused_by,
                {pause.paused_at.in_calendar}, {pause.resume_at.or_never}
            )
            ORDER BY array_position(ARRAY['queue', 'task', 'key'], pause.kind), pause.name
        )
        FROM pgjobs_pause AS pause
        WHERE {pause.holds} AND {pause.is_of_job}
    )::text,
    (
        SELECT json_build_array(queue.max_running, running.jobs, running.ids)
        FROM pgjobs_queue_settings AS queue
        CROSS JOIN LATERAL (
            SELECT
                count(*) AS jobs,
                (array_agg(other.id ORDER BY other.id))[:%(max_named)s::integer] AS ids
            FROM pgjobs_job_live AS other
            WHERE other.status = 'running' AND other.queue_name = queue.queue_name
        ) AS running
        WHERE queue.queue_name = job.queue_name AND queue.max_running IS NOT NULL
    )::text
FROM pgjobs_job AS job
-- As a join it might read all jobs.
LEFT JOIN LATERAL (
    SELECT holder.name, holder.ended_at, holder.lease_expires_at
    FROM pgjobs_worker AS holder
    WHERE holder.id = job.worker_id AND job.status = 'running'
    OFFSET 0
) AS worker ON TRUE
WHERE job.id = %(id)s::bigint
