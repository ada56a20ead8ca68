-- Let a batch be counted again that was left alone because counting it raised. In one transaction
-- with settle_batches: if that raises again, it stays so.
-- Parameters: batch_id bigint
-- Returns: id; no row if somebody has it locked
-- Locks: the batch, SKIP LOCKED
-- Index: pgjobs_batch_pkey
UPDATE pgjobs_batch AS batch
SET broken = ''
WHERE
    batch.id = ANY (ARRAY(
        SELECT taken.id
        FROM pgjobs_batch AS taken
        WHERE taken.id = %(batch_id)s::bigint AND taken.broken <> ''
        FOR NO KEY UPDATE SKIP LOCKED
    ))
RETURNING batch.id
