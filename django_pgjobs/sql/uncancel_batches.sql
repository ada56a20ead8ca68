-- Let a tree begin jobs again, also those that a cancel has kept from being made: each batch that was
-- cancelled is open again, and takes back what it said to those that follow it and to its owner. All
-- of them at once, so that none is complete before it has heard of those it waits for. A cancel that
-- is only noted is taken back, too. What was complete before the cancel stays so, and nothing of it
-- runs again. Running jobs are not asked to end any more by whoever settles their batches: one may be
-- locked now.
-- Parameters: batch_id bigint (at the top, of a tree that lock_tree has locked)
-- Returns: id of each batch that is to be settled
-- Locks: those that were cancelled (locked before)
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_batch_edge_waits_for,
--     pgjobs_batch_change_batch, pgjobs_job_cancelling
WITH RECURSIVE {batch_id.tree},
taken AS MATERIALIZED (
    SELECT
        batch.id, batch.parent_id, batch.follows, batch.completed_at, batch.tree_completed_at,
        batch.carried_failure, batch.tree_failed,
        COALESCE(batch.completed_at <= batch.cancel_requested_at, FALSE)
            AND NOT (batch.jobs = 0 AND COALESCE(batch.follows, '') IN ('gather', 'completion'))
            AND (
                SELECT page.batch_id
                FROM pgjobs_batch_page AS page
                WHERE page.batch_id = batch.id
                LIMIT 1
            ) IS NULL AS stays_complete
    FROM pgjobs_batch AS batch
    WHERE
        batch.id = ANY (ARRAY(SELECT tree.id FROM tree))
        AND batch.cancel_requested_at IS NOT NULL
    ORDER BY batch.id
    FOR NO KEY UPDATE
),
asked AS MATERIALIZED (
    SELECT DISTINCT running.batch_id
    FROM pgjobs_job_live AS running
    WHERE
        running.status = 'running' AND running.cancel_requested_at IS NOT NULL
        AND running.batch_id IS NOT NULL
),
opened AS (
    UPDATE pgjobs_batch AS batch
    SET
        cancel_requested_at = NULL,
        completed_at = CASE WHEN taken.stays_complete THEN batch.completed_at END,
        tree_completed_at = NULL,
        carried_failure = taken.stays_complete AND batch.carried_failure,
        tree_failed = FALSE,
        unasked_at = CASE
            WHEN batch.id IN (SELECT asked.batch_id FROM asked) THEN statement_timestamp()
        END
    FROM taken
    WHERE batch.id = taken.id AND batch.id = ANY (ARRAY(SELECT taken.id FROM taken))
),
unnoted AS (
    UPDATE pgjobs_batch_change AS change
    SET cancels = FALSE
    WHERE change.batch_id = ANY (ARRAY(SELECT tree.id FROM tree)) AND change.cancels
),
noted AS (
    INSERT INTO pgjobs_batch_change AS change (
        batch_id, predecessors, failed_predecessors, children, parts, failed_children, reopens
    )
    SELECT taken.id, 0, 0, 0, 0, 0, NOT taken.stays_complete FROM taken
    UNION ALL
    SELECT edge.batch_id, 1, -taken.carried_failure::integer, 0, 0, 0, FALSE
    FROM taken
    CROSS JOIN LATERAL (
        SELECT follower.batch_id
        FROM pgjobs_batch_edge AS follower
        WHERE follower.waits_for = taken.id
        OFFSET 0
    ) AS edge
    WHERE taken.completed_at IS NOT NULL AND NOT taken.stays_complete
    UNION ALL
    SELECT
        taken.parent_id, 0, 0, 1, (taken.follows IS NULL)::integer, -taken.tree_failed::integer,
        FALSE
    FROM taken
    WHERE taken.tree_completed_at IS NOT NULL AND taken.parent_id IS NOT NULL
    RETURNING change.batch_id
)
SELECT DISTINCT noted.batch_id FROM noted
