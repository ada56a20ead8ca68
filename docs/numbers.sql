/* The numbers on the pages of the admin, as queries; see docs/admin-overview.md. */

-- Overview, at the top: ready, running, retrying, scheduled, blocked
SELECT count(*) FILTER (WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL),
       count(*) FILTER (WHERE status = 'running'),
       count(*) FILTER (WHERE due_at IS NOT NULL AND hold IS NULL AND attempts > 0),
       count(*) FILTER (WHERE due_at IS NOT NULL AND hold IS NULL AND attempts = 0),
       count(*) FILTER (WHERE hold IS NOT NULL)
FROM pgjobs_job_live;

-- Overview: failed in the last hour, finished per minute
SELECT count(*) FILTER (WHERE status = 'failed'),
       count(*) FILTER (WHERE finished_at >= date_trunc('minute', now()) - interval '5 minutes'
                          AND finished_at < date_trunc('minute', now())) / 5.0
FROM pgjobs_job_finished
WHERE finished_at >= date_trunc('minute', now()) - interval '59 minutes';

-- Overview and Queues, per queue: ready, blocked, running, finished and failed in the last hour
SELECT queue_name,
       count(*) FILTER (WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL),
       count(*) FILTER (WHERE hold IS NOT NULL),
       count(*) FILTER (WHERE status = 'running'),
       count(*) FILTER (WHERE finished_at IS NOT NULL),
       count(*) FILTER (WHERE status = 'failed')
FROM pgjobs_job
WHERE finished_at IS NULL OR finished_at >= date_trunc('minute', now()) - interval '59 minutes'
GROUP BY queue_name ORDER BY queue_name;

-- Overview, the chart of 24 hours: by status, queue and task
SELECT status, queue_name, task_path, count(*)
FROM pgjobs_job_finished
WHERE finished_at >= date_bin('15 minutes', now(), 'epoch') - interval '1425 minutes'
GROUP BY status, queue_name, task_path;

-- Overview and Failures: failed in the last day, by task and exception
SELECT task_path, errors -> -1 ->> 'exception_class', count(*)
FROM pgjobs_job_finished
WHERE status = 'failed' AND finished_at > now() - interval '1 day'
GROUP BY 1, 2 ORDER BY 3 DESC, 1;

-- Workers: live ones, their slots, the jobs that each holds
SELECT worker.name, worker.slots, count(job.id)
FROM pgjobs_worker AS worker
LEFT JOIN pgjobs_job_live AS job ON job.worker_id = worker.id AND job.status = 'running'
WHERE worker.ended_at IS NULL AND worker.lease_expires_at > now()
GROUP BY worker.id ORDER BY worker.name;

-- Queues: what is paused, by whom and why
SELECT kind, name, paused_by, reason FROM pgjobs_pause WHERE resume_at IS NULL OR resume_at > now();

-- Limits: how many jobs of each key run
SELECT concurrency_key, count(*) FROM pgjobs_job_live
WHERE status = 'running' AND concurrency_key IS NOT NULL GROUP BY 1 ORDER BY 1;

-- System: dead rows and sessions of workers
SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE relname LIKE 'pgjobs%';
SELECT application_name, state, query_start FROM pg_stat_activity
WHERE application_name LIKE 'pgjobs %';
