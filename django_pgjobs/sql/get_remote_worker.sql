-- Read a worker over HTTP, if it is one of a token and its lease holds.
-- Parameters: id, token_id bigint
-- Returns: name, queues, task_paths, backends; listening, is it asked to claim nothing?; to stop?
-- Locks: none
-- Index: none
SELECT
    worker.name, COALESCE(worker.queues, '{}'), worker.task_paths, worker.backends,
    worker.listening, worker.quiet_requested_at IS NOT NULL, worker.stop_requested_at IS NOT NULL
FROM pgjobs_worker AS worker
WHERE
    worker.id = %(id)s::bigint AND worker.token_id = %(token_id)s::bigint AND {worker.is_live}
