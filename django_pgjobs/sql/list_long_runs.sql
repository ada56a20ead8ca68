-- List the jobs that live workers have run for long, those first that have run for longest.
-- Parameters: seconds double precision (for how long at least); ids bigint[] (NULL: any job);
--     max_runs integer
-- Returns: id, task_path, queue_name, worker_id, name of the worker, seconds it has run,
--     progress as JSON in a text (NULL: it reported none), the time now
-- Locks: none
-- Index: pgjobs_job_running
{seconds.long_runs}
