-- Find the highest of the batches above one that is cancelled, or is to be.
-- Parameters: batch_id bigint
-- Returns: id; no row if none is
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_change_batch
WITH RECURSIVE above AS (
    SELECT batch.parent_id AS id
    FROM pgjobs_batch AS batch
    WHERE batch.id = %(batch_id)s::bigint
    UNION ALL
    SELECT owner.parent_id
    FROM above
    CROSS JOIN LATERAL (
        SELECT batch.parent_id FROM pgjobs_batch AS batch WHERE batch.id = above.id OFFSET 0
    ) AS owner
)
SELECT owner.id
FROM above
CROSS JOIN LATERAL (
    SELECT batch.id, batch.cancel_requested_at
    FROM pgjobs_batch AS batch
    WHERE batch.id = above.id
    OFFSET 0
) AS owner
WHERE
    owner.cancel_requested_at IS NOT NULL
    OR EXISTS (
        SELECT FROM pgjobs_batch_change AS change
        WHERE change.batch_id = owner.id AND change.cancels
    )
ORDER BY owner.id
LIMIT 1
