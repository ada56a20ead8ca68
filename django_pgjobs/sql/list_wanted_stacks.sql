-- List the jobs of a worker of which somebody asks where they are.
-- Parameters: worker_id bigint; max_jobs integer
-- Returns: job_id, claim
-- Locks: none
-- Index: pgjobs_stack_wanted
SELECT asked.job_id, asked.claim
FROM pgjobs_stack AS asked
WHERE asked.worker_id = %(worker_id)s::bigint AND asked.written_at IS NULL
ORDER BY asked.job_id
LIMIT %(max_jobs)s::integer
