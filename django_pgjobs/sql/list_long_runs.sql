-- List the jobs that live workers have run for long, those first that have run for longest.
-- Parameters: long_seconds double precision (for how long at least); ids bigint[] (NULL: any job);
--     max_runs integer
-- Returns: id, task_path, queue_name, worker_id, name of the worker, seconds it has run,
--     progress as JSON in a text (NULL: it reported none), the time now
-- Locks: none
-- Index: pgjobs_job_running
SELECT
    job.id, job.task_path, job.queue_name, job.worker_id, worker.name AS worker_name,
    date_part('epoch', statement_timestamp() - {job.last_attempted_at.in_calendar}) AS seconds,
    job.progress::text, statement_timestamp() AS now
FROM pgjobs_job_live AS job
JOIN pgjobs_worker AS worker ON worker.id = job.worker_id
WHERE
    job.status = 'running' AND {worker.is_live}
    AND job.last_attempted_at
    <= statement_timestamp() - make_interval(secs => %(long_seconds)s::double precision)
    AND (%(ids)s::bigint[] IS NULL OR job.id = ANY (%(ids)s::bigint[]))
ORDER BY job.last_attempted_at, job.id
LIMIT %(max_runs)s::integer
