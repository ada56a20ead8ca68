-- Leave a batch alone from now on, because counting it raises.
-- Parameters: batch_id bigint; reason text
-- Returns: id; no row if somebody has it locked
-- Locks: the batch, SKIP LOCKED
-- Index: pgjobs_batch_pkey
UPDATE pgjobs_batch AS batch
SET broken = %(reason)s::text
WHERE
    batch.id = ANY (ARRAY(
        SELECT taken.id
        FROM pgjobs_batch AS taken
        WHERE taken.id = %(batch_id)s::bigint
        FOR NO KEY UPDATE SKIP LOCKED
    ))
RETURNING batch.id
