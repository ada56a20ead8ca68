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
    (EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM worker.started_at))
        ::double precision,
    (EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM worker.heartbeat_at))
        ::double precision,
    (EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM worker.ended_at))
        ::double precision,
    (EXTRACT(EPOCH FROM worker.lease_expires_at) - EXTRACT(EPOCH FROM worker.heartbeat_at))
        ::double precision,
    (EXTRACT(EPOCH FROM worker.lease_expires_at) - EXTRACT(EPOCH FROM statement_timestamp()))
        ::double precision
FROM pgjobs_worker AS worker
WHERE worker.id = %(id)s::bigint
