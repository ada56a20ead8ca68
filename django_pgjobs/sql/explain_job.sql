-- Read what one job says of itself, and of the worker that holds it.
-- Parameters: id bigint
-- Returns: id, status, backend, queue_name, task_path, hold, concurrency_key, rate_limit_keys,
--     rate_cost, attempts, max_attempts, run_after, due_at, finished_at, last_attempted_at,
--     cancel_requested_at, note, class of the newest exception or NULL; name of the worker or
--     NULL, the end of its lease or NULL; the time now; is anything paused?; is its queue limited?
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey
SELECT
    job.id, job.status, job.backend, job.queue_name, job.task_path, job.hold,
    job.concurrency_key, job.rate_limit_keys, job.rate_cost, job.attempts, job.max_attempts,
    job.run_after, job.due_at, job.finished_at, job.last_attempted_at, job.cancel_requested_at,
    job.note, job.errors -> -1 ->> 'exception_class',
    worker.name, CASE WHEN worker.ended_at IS NULL THEN worker.lease_expires_at END,
    statement_timestamp(),
    EXISTS (SELECT FROM pgjobs_pause AS pause),
    EXISTS (
        SELECT
        FROM pgjobs_queue_settings AS queue
        WHERE queue.queue_name = job.queue_name AND queue.max_running IS NOT NULL
    )
FROM pgjobs_job AS job
LEFT JOIN pgjobs_worker AS worker ON worker.id = job.worker_id AND job.status = 'running'
WHERE job.id = %(id)s::bigint
