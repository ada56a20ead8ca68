-- Read one worker as the list of workers shows it.
-- Parameters: id bigint
-- Returns: as list_workers.sql; no row if there is no such worker
-- Locks: none
-- Index: none
SELECT
    worker.id, worker.name, worker.host, worker.pid, worker.version, worker.queues,
    worker.excluded_queues, worker.slots, worker.listening, worker.lost,
    worker.ended_at IS NOT NULL, worker.quiet_requested_at IS NOT NULL,
    worker.stop_requested_at IS NOT NULL,
    date_part('epoch', statement_timestamp()) - date_part('epoch', worker.started_at),
    date_part('epoch', statement_timestamp()) - date_part('epoch', worker.heartbeat_at),
    date_part('epoch', statement_timestamp()) - date_part('epoch', worker.ended_at),
    date_part('epoch', worker.lease_expires_at) - date_part('epoch', worker.heartbeat_at),
    date_part('epoch', worker.lease_expires_at) - date_part('epoch', statement_timestamp())
FROM pgjobs_worker AS worker
WHERE worker.id = %(id)s::bigint
