-- Keep the tree of a batch from being deleted until the transaction ends.
-- Parameters: batch_id bigint (any of the tree)
-- Returns: id of the root, is_deleting (then it is not kept); no row if there is no such batch
-- Locks: the root FOR KEY SHARE: waits for who seals it, or begins to delete it
-- Index: pgjobs_batch_pkey
SELECT root.id, root.deleting_at IS NOT NULL AS is_deleting
FROM pgjobs_batch AS root
WHERE
    root.id = (
        SELECT batch.root_id FROM pgjobs_batch AS batch WHERE batch.id = %(batch_id)s::bigint LIMIT 1
    )
FOR KEY SHARE
