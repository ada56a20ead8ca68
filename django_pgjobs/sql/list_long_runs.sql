-- List the jobs that have run for long, those first that have run for longest.
-- Parameters: seconds double precision (for how long at least); ids bigint[] (NULL: any job);
--     max_jobs integer
-- Returns: id, task_path, queue_name, worker_id, name of the worker (NULL: its row is gone), seconds it
--     has run, progress as JSON in a text (NULL: it reported none), the time now
-- Locks: none
-- Index: pgjobs_job_running
SELECT
    job.id, job.task_path, job.queue_name, job.worker_id,
    (SELECT worker.name FROM pgjobs_worker AS worker WHERE worker.id = job.worker_id),
    date_part('epoch', statement_timestamp() - {job.last_attempted_at.in_calendar}),
    job.progress::text, statement_timestamp()
FROM pgjobs_job_live AS job
WHERE
    job.status = 'running'
    AND job.last_attempted_at
    <= statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
    AND (%(ids)s::bigint[] IS NULL OR job.id = ANY (%(ids)s::bigint[]))
ORDER BY job.last_attempted_at, job.id
LIMIT %(max_jobs)s::integer
