-- List what workers run now: the jobs that each has run longest, and how many it holds.
-- Parameters: worker_ids bigint[]; max_jobs, max_counted (of each worker) integer
-- Returns: worker_id; how many jobs it holds, those that it has claimed ahead included, up to one more
--     than max_counted; id, task_path, queue_name of a job, seconds since its attempt began, its
--     timeout or NULL, is it asked to end?
-- Locks: none
-- Index: pgjobs_job_running
SELECT
    wanted.id, job.held, job.id, job.task_path, job.queue_name,
    (EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM job.begun_at))
        ::double precision,
    job.timeout, job.cancel_requested_at IS NOT NULL
FROM pg_catalog.unnest(%(worker_ids)s::bigint[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT
        running.id, running.task_path, running.queue_name, running.timeout,
        running.cancel_requested_at, running.begun_at, count(*) OVER () AS held
    FROM (
        SELECT
            live.id, live.task_path, live.queue_name, live.timeout, live.cancel_requested_at,
            LEAST(
                GREATEST(COALESCE(live.last_attempted_at, statement_timestamp()), '0001-01-02'),
                statement_timestamp()
            ) AS begun_at
        FROM pgjobs_job_live AS live
        WHERE live.status = 'running' AND live.worker_id = wanted.id
        ORDER BY live.id
        LIMIT %(max_counted)s::integer + 1
    ) AS running
    ORDER BY running.begun_at, running.id
    LIMIT %(max_jobs)s::integer
) AS job
ORDER BY wanted.id DESC, job.begun_at, job.id
