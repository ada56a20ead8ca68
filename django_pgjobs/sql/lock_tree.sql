-- Keep what is noted of a tree from being counted until the transaction ends.
-- Parameters: batch_id bigint (at the top)
-- Returns: how many batches it has
-- Locks: the batches, in order of id: waits for who counts one
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent
WITH RECURSIVE {batch_id.tree},
locked AS MATERIALIZED (
    SELECT batch.id
    FROM pgjobs_batch AS batch
    WHERE batch.id = ANY (ARRAY(SELECT tree.id FROM tree))
    ORDER BY batch.id
    FOR NO KEY UPDATE
)
SELECT count(*) FROM locked
