-- Find out whether somebody asks a worker to be quiet or to stop.
-- Parameters: id bigint (the worker)
-- Returns: does somebody?
-- Locks: none
-- Index: pgjobs_worker_pkey
SELECT EXISTS (
    SELECT FROM pgjobs_worker AS worker
    WHERE
        worker.id = %(id)s::bigint
        AND (worker.quiet_requested_at IS NOT NULL OR worker.stop_requested_at IS NOT NULL)
)
