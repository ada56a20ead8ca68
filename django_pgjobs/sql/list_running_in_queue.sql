-- List running jobs of one queue, those that run longest first.
-- Parameters: queue_name text; max_running (read), max_jobs (returned) integer
-- Returns: id, task_path, worker_id, name of the worker or NULL, seconds since the attempt began
-- Locks: none
-- Index: pgjobs_job_running
SELECT
    job.id, job.task_path, job.worker_id, worker.name,
    (EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM job.begun_at))
        ::double precision
FROM (
    SELECT
        running.id, running.task_path, running.worker_id, running.queue_name,
        LEAST(
            GREATEST(COALESCE(running.last_attempted_at, statement_timestamp()), '0001-01-02'),
            statement_timestamp()
        ) AS begun_at
    FROM pgjobs_job_live AS running
    WHERE running.status = 'running'
    ORDER BY running.worker_id, running.id
    LIMIT %(max_running)s::integer
) AS job
LEFT JOIN pgjobs_worker AS worker ON worker.id = job.worker_id
WHERE job.queue_name = %(queue_name)s::text
ORDER BY job.begun_at, job.id
LIMIT %(max_jobs)s::integer
