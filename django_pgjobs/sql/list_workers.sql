-- List the live workers, the newest first, then those that ended lately, the newest end first.
-- Parameters: ended_within double precision (seconds); max_workers integer
-- Returns: id, name, host, pid, version, queues (NULL: all), excluded_queues, slots; listening,
--     lost, has it ended?, is it asked to be quiet?, to stop?; seconds since it began, since its
--     heartbeat, since it ended (NULL: it has not), length of its lease, seconds left of it;
--     the token of one over HTTP (NULL: a process of ours)
-- Locks: none
-- Index: none
SELECT {worker.as_worker_row}
FROM pgjobs_worker AS worker
WHERE
    worker.ended_at IS NULL
    OR worker.ended_at > statement_timestamp()
    - make_interval(secs => %(ended_within)s::double precision)
ORDER BY worker.ended_at DESC NULLS FIRST, worker.id DESC
LIMIT %(max_workers)s::integer
