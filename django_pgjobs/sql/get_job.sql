-- Read one job as django.tasks sees it.
-- Parameters: id bigint; backend text
-- Returns: id, status, task_path, queue_name, priority, run_after, enqueued_at, started_at,
--     last_attempted_at, finished_at, max_attempts, timeout, correlation_id, tags, and as text
--     args, kwargs, metadata, errors, result; then worker_ids
-- Locks: none
-- Index: pgjobs_job_live_pkey
SELECT
    job.id, job.status, job.task_path, job.queue_name, job.priority, job.run_after,
    job.enqueued_at, job.started_at, job.last_attempted_at, job.finished_at, job.max_attempts,
    job.timeout, job.correlation_id, job.tags, job.args::text, job.kwargs::text,
    job.metadata::text, job.errors::text, job.result::text, job.worker_ids
FROM pgjobs_job AS job
WHERE job.id = %(id)s::bigint AND job.backend = %(backend)s::text
