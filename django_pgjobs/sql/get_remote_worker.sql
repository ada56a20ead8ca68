-- Read a worker over HTTP, if it is one of a token that is good, and its lease holds. Who waits asks
-- again before it is given something: its request may be older than the end of its token.
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
    AND EXISTS (
        SELECT FROM pgjobs_token AS token
        WHERE token.id = %(token_id)s::bigint AND {token.is_valid}
    )
