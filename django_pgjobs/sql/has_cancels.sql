-- Tell whether some batch of a tree is cancelled, or is to be.
-- Parameters: batch_id bigint (at the top)
-- Returns: has_cancels
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_batch_change_batch
WITH RECURSIVE {batch_id.tree}
SELECT EXISTS (
    SELECT
    FROM tree
    CROSS JOIN LATERAL (
        SELECT batch.cancel_requested_at FROM pgjobs_batch AS batch WHERE batch.id = tree.id OFFSET 0
    ) AS here
    WHERE
        here.cancel_requested_at IS NOT NULL
        OR EXISTS (
            SELECT FROM pgjobs_batch_change AS change
            WHERE change.batch_id = tree.id AND change.cancels
        )
) AS has_cancels
