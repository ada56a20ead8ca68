-- Renew a worker's lease, unless it ran out already: what is lost stays lost.
-- Parameters: id bigint; lease double precision (seconds)
-- Returns: one row while the lease holds: is this the leader (the oldest live worker
--     that is a process of ours)?; seconds
--     until the earliest lease of another worker ends (NULL: no other worker); is the worker
--     asked to claim nothing?; is it asked to stop?
-- Locks: the worker's own row
-- Index: pgjobs_worker_pkey
WITH renewed AS (
    UPDATE pgjobs_worker AS worker
    SET
        heartbeat_at = statement_timestamp(),
        lease_expires_at
            = statement_timestamp() + make_interval(secs => %(lease)s::double precision)
    WHERE worker.id = %(id)s::bigint AND {worker.is_live}
    RETURNING worker.id, worker.quiet_requested_at, worker.stop_requested_at
),
other AS (
    SELECT worker.id, worker.lease_expires_at, worker.token_id
    FROM pgjobs_worker AS worker
    WHERE worker.ended_at IS NULL AND worker.id <> %(id)s::bigint
)
SELECT
    NOT EXISTS (
        SELECT FROM other
        WHERE
            other.id < renewed.id AND other.token_id IS NULL
            AND other.lease_expires_at > statement_timestamp()
    ),
    date_part('epoch', (SELECT min(other.lease_expires_at) FROM other))
    - date_part('epoch', statement_timestamp()),
    renewed.quiet_requested_at IS NOT NULL,
    renewed.stop_requested_at IS NOT NULL
FROM renewed
