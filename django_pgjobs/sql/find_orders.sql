-- Find out what people ask of a worker.
-- Parameters: id bigint (the worker)
-- Returns: is it to be quiet?; is it to stop, or to tell where a job is?
-- Locks: none
-- Index: pgjobs_worker_pkey, pgjobs_stack_wanted
SELECT
    worker.quiet_requested_at IS NOT NULL,
    worker.stop_requested_at IS NOT NULL
    OR EXISTS (
        SELECT FROM pgjobs_stack AS asked
        WHERE asked.worker_id = worker.id AND asked.written_at IS NULL
    )
FROM pgjobs_worker AS worker
WHERE worker.id = %(id)s::bigint
