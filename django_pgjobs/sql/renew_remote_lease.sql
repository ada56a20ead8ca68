-- Renew the lease of a worker over HTTP, unless it ran out already, and note which attempts it
-- named. It keeps of each when that was; what is silent for too long is forgotten.
-- Parameters: id, token_id bigint; lease, silent double precision (seconds); named text[] (attempts)
-- Returns: one row while the lease holds: is it asked to claim nothing?; to stop?; seconds until
--     the earliest lease of another worker ends (NULL: no other worker); as JSON text, how many
--     seconds ago it named each attempt
-- Locks: the worker's own row
-- Index: none
WITH renewed AS (
    UPDATE pgjobs_worker AS worker
    SET
        heartbeat_at = statement_timestamp(),
        lease_expires_at
            = statement_timestamp() + make_interval(secs => %(lease)s::double precision),
        named_at = COALESCE(
            (
                SELECT jsonb_object_agg(said.id, said.at)
                FROM (
                    SELECT earlier.id, earlier.at
                    FROM (
                        SELECT
                            entry.key AS id,
                            CASE
                                WHEN jsonb_typeof(entry.value) = 'number'
                                    THEN entry.value::numeric
                            END AS at
                        FROM jsonb_each(
                            CASE
                                WHEN jsonb_typeof(worker.named_at) = 'object'
                                    THEN worker.named_at
                                ELSE '{}'
                            END
                        ) AS entry
                    ) AS earlier
                    WHERE
                        earlier.at > EXTRACT(EPOCH FROM statement_timestamp())
                        - %(silent)s::double precision::numeric
                        AND earlier.id <> ALL (%(named)s::text[])
                    UNION ALL
                    SELECT DISTINCT named.id, EXTRACT(EPOCH FROM statement_timestamp())
                    FROM pg_catalog.unnest(%(named)s::text[]) AS named (id)
                ) AS said
            ),
            '{}'
        )
    WHERE
        worker.id = %(id)s::bigint AND worker.token_id = %(token_id)s::bigint
        AND {worker.is_live}
    RETURNING worker.id, worker.quiet_requested_at, worker.stop_requested_at, worker.named_at
)
SELECT
    renewed.quiet_requested_at IS NOT NULL,
    renewed.stop_requested_at IS NOT NULL,
    date_part('epoch', (
        SELECT min(other.lease_expires_at)
        FROM pgjobs_worker AS other
        WHERE other.ended_at IS NULL AND other.id <> renewed.id
    )) - date_part('epoch', statement_timestamp()),
    (
        SELECT COALESCE(
            json_object_agg(
                entry.key, EXTRACT(EPOCH FROM statement_timestamp()) - entry.value::numeric
            ),
            '{}'
        )::text
        FROM jsonb_each(renewed.named_at) AS entry
    )
FROM renewed
