-- Note that the jobs of complete trees are being deleted: none of them is requeued any more.
-- Parameters: roots bigint[]
-- Returns: id of each that it marks
-- Locks: the roots FOR UPDATE, SKIP LOCKED: one that somebody retries is left
-- Index: pgjobs_batch_pkey
UPDATE pgjobs_batch AS root
SET deleting_at = statement_timestamp()
WHERE
    root.id = ANY (ARRAY(
        SELECT taken.id
        FROM pgjobs_batch AS taken
        WHERE
            -- Not IS NULL, by which the planner may take the index of all that have ended.
            taken.id = ANY (%(roots)s::bigint[]) AND COALESCE(taken.parent_id, 0) = 0
            AND taken.tree_completed_at IS NOT NULL AND taken.deleting_at IS NULL
        ORDER BY taken.id
        FOR UPDATE SKIP LOCKED
    ))
RETURNING root.id
