-- Note that nothing of a batch and of what is below it is to begin any more.
-- Parameters: batch_id bigint
-- Returns: id, is_news (else its tree is complete, or it was cancelled before); no row if there is
--     no such batch
-- Locks: none that another session waits for
-- Index: pgjobs_batch_pkey
WITH target AS (
    SELECT
        batch.id,
        batch.tree_completed_at IS NULL AND batch.cancel_requested_at IS NULL AS is_news
    FROM pgjobs_batch AS batch
    WHERE batch.id = %(batch_id)s::bigint
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, cancels)
    SELECT target.id, TRUE FROM target WHERE target.is_news
)
SELECT target.id, target.is_news FROM target
