-- List the live workers and those that ended lately, live ones first, newest first.
-- Parameters: ended_within double precision (seconds); max_workers integer
-- Returns: id, name, host, pid, version, queues (NULL: all), excluded_queues, slots; listening,
--     lost, has it ended?, is it asked to be quiet?, to stop?; seconds since it began, since its
--     heartbeat, since it ended (NULL: it has not), length of its lease, seconds left of it
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
WHERE
    worker.ended_at IS NULL
    OR worker.ended_at > statement_timestamp()
    - make_interval(secs => %(ended_within)s::double precision)
ORDER BY worker.ended_at IS NOT NULL, worker.id DESC
LIMIT %(max_workers)s::integer
