-- Note that no more jobs come. Whoever settles the batch seals it, as soon as nobody adds to it.
-- Parameters: batch_id bigint
-- Returns: id, is_news (else it was sealed before, or what it follows seals it); no row if there is
--     no such batch
-- Locks: none that another session waits for
-- Index: pgjobs_batch_pkey
WITH target AS (
    SELECT batch.id, batch.sealed_at IS NULL AND batch.follows IS NULL AS is_news
    FROM pgjobs_batch AS batch
    WHERE batch.id = %(batch_id)s::bigint
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, seals)
    SELECT target.id, TRUE FROM target WHERE target.is_news
)
SELECT target.id, target.is_news FROM target
