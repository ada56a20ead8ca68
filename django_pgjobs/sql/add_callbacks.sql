-- Let more be enqueued when the tree of a batch is complete.
-- Parameters: batch_id bigint; callbacks text (JSON, a list)
-- Returns: id; no row if the tree is complete, or there is no such batch
-- Locks: the batch: waits for who settles or seals it
-- Index: pgjobs_batch_open
UPDATE pgjobs_batch AS batch
SET
    callbacks = (
        SELECT COALESCE(json_agg(every.call ORDER BY every.part, every.place), '[]')
        FROM (
            SELECT 1 AS part, former.place, former.call
            FROM json_array_elements(batch.callbacks) WITH ORDINALITY AS former (call, place)
            UNION ALL
            SELECT 2, added.place, added.call
            FROM json_array_elements(%(callbacks)s::json) WITH ORDINALITY AS added (call, place)
        ) AS every
    )
WHERE batch.id = %(batch_id)s::bigint AND batch.tree_completed_at IS NULL
RETURNING batch.id
