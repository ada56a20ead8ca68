-- Read one job as django.tasks sees it.
-- Parameters: id bigint; backend text
-- Returns: id, status, task_path, queue_name, priority, run_after, enqueued_at, started_at,
--     last_attempted_at, finished_at, max_attempts, timeout, correlation_id, tags, and as text
--     args, kwargs, metadata, errors, result; then worker_ids
-- Locks: none
-- Index: pgjobs_job_live_pkey
SELECT {job.as_job_row}
FROM pgjobs_job AS job
WHERE job.id = %(id)s::bigint AND job.backend = %(backend)s::text
