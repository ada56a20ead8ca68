-- Enter a worker and start its lease.
-- Parameters: name, host, version text; pid, slots integer; queues text[] (NULL: all);
--     excluded_queues, backends, task_paths text[]; lease double precision (seconds)
-- Returns: id
-- Locks: none
-- Index: none
INSERT INTO pgjobs_worker (
    name, host, pid, version, slots, queues, excluded_queues, backends, task_paths,
    started_at, heartbeat_at, lease_expires_at, lost, listening
)
VALUES (
    %(name)s::text, %(host)s::text, %(pid)s::integer, %(version)s::text, %(slots)s::integer,
    %(queues)s::text[], %(excluded_queues)s::text[], %(backends)s::text[],
    %(task_paths)s::text[],
    statement_timestamp(), statement_timestamp(),
    statement_timestamp() + make_interval(secs => %(lease)s::double precision), FALSE, FALSE
)
RETURNING id
