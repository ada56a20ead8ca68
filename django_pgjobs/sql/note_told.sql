-- Note that the end of the results of trees was told.
-- Parameters: roots bigint[]
-- Returns: nothing
-- Locks: the roots, SKIP LOCKED
-- Index: pgjobs_batch_pkey
UPDATE pgjobs_batch AS root
SET told_at = statement_timestamp()
WHERE
    root.id = ANY (ARRAY(
        SELECT taken.id
        FROM pgjobs_batch AS taken
        WHERE taken.id = ANY (%(roots)s::bigint[]) AND taken.tree_completed_at IS NOT NULL
        FOR NO KEY UPDATE SKIP LOCKED
    ))
