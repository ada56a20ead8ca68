-- List what workers run now: the jobs that each has run longest, and how many it holds.
-- Parameters: worker_ids bigint[]; max_jobs, max_counted (of each worker) integer
-- Returns: worker_id; how many jobs it holds, those that it has claimed ahead included; id,
--     task_path, queue_name of a job, seconds since its attempt began, its timeout or NULL, is it
--     asked to end?
-- Locks: none
-- Index: pgjobs_job_running
SELECT
    wanted.id, held.jobs, job.id, job.task_path, job.queue_name,
    (EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM job.begun_at))
        ::double precision,
    job.timeout, job.cancel_requested_at IS NOT NULL
FROM pg_catalog.unnest(%(worker_ids)s::bigint[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM (
        SELECT FROM pgjobs_job_live AS counted
        WHERE counted.status = 'running' AND counted.worker_id = wanted.id
        ORDER BY counted.id
        LIMIT %(max_counted)s::integer
    ) AS bounded
) AS held
CROSS JOIN LATERAL (
    SELECT
        running.id, running.task_path, running.queue_name, running.timeout,
        running.cancel_requested_at,
        LEAST(
            GREATEST(COALESCE(running.last_attempted_at, statement_timestamp()), '0001-01-02'),
            statement_timestamp()
        ) AS begun_at
    FROM pgjobs_job_live AS running
    WHERE running.status = 'running' AND running.worker_id = wanted.id
    ORDER BY running.id
    LIMIT %(max_jobs)s::integer
) AS job
ORDER BY wanted.id DESC, job.begun_at, job.id
