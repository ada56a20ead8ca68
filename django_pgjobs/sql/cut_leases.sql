-- Cut the leases of other workers that end later than two leases from now to one lease from now.
--
-- Such a lease was given before the server's clock was set back, or by nobody of ours. Whoever
-- lives renews it in time.
-- Parameters: id bigint (the worker that asks)
-- Returns: nothing
-- Locks: the rows that are cut, SKIP LOCKED
-- Index: none: a small table
WITH ahead AS (
    SELECT worker.id, lease.length
    FROM pgjobs_worker AS worker
    CROSS JOIN LATERAL (
        -- A minute where nobody has said how long it is.
        SELECT make_interval(
            secs => LEAST(GREATEST(COALESCE(worker.lease_seconds, 60), 1), 86400)
        ) AS length
    ) AS lease
    WHERE
        worker.id <> %(id)s::bigint AND worker.ended_at IS NULL
        AND worker.lease_expires_at > statement_timestamp() + lease.length + lease.length
    ORDER BY worker.id
    FOR UPDATE OF worker SKIP LOCKED
)
UPDATE pgjobs_worker AS worker
SET
    heartbeat_at = statement_timestamp(),
    lease_expires_at = statement_timestamp() + ahead.length
FROM ahead
WHERE worker.id = ahead.id
