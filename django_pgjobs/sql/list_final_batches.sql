-- List the batches of a tree, or of a part of it, that nothing follows: their results are its own.
-- Parameters: batch_id bigint (at the top)
-- Returns: id, in order
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_batch_edge_waits_for
WITH RECURSIVE {batch_id.tree}
SELECT tree.id
FROM tree
WHERE (
    SELECT edge.batch_id
    FROM pgjobs_batch_edge AS edge
    WHERE edge.waits_for = tree.id
    LIMIT 1
) IS NULL
ORDER BY tree.id
