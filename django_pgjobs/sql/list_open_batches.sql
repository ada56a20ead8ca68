-- List batches whose trees are not complete: a page, in order of id.
-- Parameters: behind bigint (where the page before ended, 0 at first); max_batches integer
-- Returns: id, is_broken
-- Locks: none
-- Index: pgjobs_batch_open
SELECT batch.id, batch.broken <> '' AS is_broken
FROM pgjobs_batch AS batch
WHERE batch.tree_completed_at IS NULL AND batch.id > %(behind)s::bigint
ORDER BY batch.id
LIMIT %(max_batches)s::integer
