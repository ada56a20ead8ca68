-- Enter a worker and start its lease.
-- Parameters: name, host, version text; pid, slots integer; queues text[] (NULL: all);
--     excluded_queues, backends, task_paths, schedule_names text[]; lease double precision (seconds);
--     quiet boolean (was it asked, in a row whose lease was lost, to claim nothing?);
--     token_id bigint (of a worker over HTTP, NULL of a process of ours)
-- Returns: id
-- Locks: none
-- Index: none
INSERT INTO pgjobs_worker (
    name, host, pid, version, slots, queues, excluded_queues, backends, task_paths,
    schedule_names, started_at, heartbeat_at, lease_expires_at, lease_seconds, lost, listening,
    quiet_requested_at, token_id
)
VALUES (
    %(name)s::text, %(host)s::text, %(pid)s::integer, %(version)s::text, %(slots)s::integer,
    %(queues)s::text[], %(excluded_queues)s::text[], %(backends)s::text[],
    %(task_paths)s::text[], %(schedule_names)s::text[],
    statement_timestamp(), statement_timestamp(),
    statement_timestamp() + make_interval(secs => %(lease)s::double precision),
    %(lease)s::double precision, FALSE, FALSE,
    CASE WHEN %(quiet)s::boolean THEN statement_timestamp() END,
    %(token_id)s::bigint
)
RETURNING id
