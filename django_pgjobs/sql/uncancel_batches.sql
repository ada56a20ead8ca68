-- Let a tree begin jobs again, also those that a cancel has kept from being made: each batch that was
-- cancelled is open again, and takes back what it said to those that follow it and to its owner. All
-- of them at once, so that none is complete before it has heard of those it waits for.
-- Parameters: batch_id bigint (at the top)
-- Returns: id of each batch that is to be settled
-- Locks: those that were cancelled, in order of id: waits for who counts one
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_batch_edge_waits_for
WITH RECURSIVE {batch_id.tree},
taken AS MATERIALIZED (
    SELECT
        batch.id, batch.parent_id, batch.follows, batch.completed_at, batch.tree_completed_at,
        batch.carried_failure, batch.tree_failed
    FROM pgjobs_batch AS batch
    WHERE
        batch.id = ANY (ARRAY(SELECT tree.id FROM tree))
        AND batch.cancel_requested_at IS NOT NULL
    ORDER BY batch.id
    FOR NO KEY UPDATE
),
opened AS (
    UPDATE pgjobs_batch AS batch
    SET
        cancel_requested_at = NULL, completed_at = NULL, tree_completed_at = NULL,
        carried_failure = FALSE, tree_failed = FALSE
    WHERE batch.id = ANY (ARRAY(SELECT taken.id FROM taken))
),
noted AS (
    INSERT INTO pgjobs_batch_change AS change (
        batch_id, predecessors, failed_predecessors, children, parts, failed_children, reopens
    )
    SELECT taken.id, 0, 0, 0, 0, 0, TRUE FROM taken
    UNION ALL
    SELECT edge.batch_id, 1, -taken.carried_failure::integer, 0, 0, 0, FALSE
    FROM taken
    CROSS JOIN LATERAL (
        SELECT follower.batch_id
        FROM pgjobs_batch_edge AS follower
        WHERE follower.waits_for = taken.id
        OFFSET 0
    ) AS edge
    WHERE taken.completed_at IS NOT NULL
    UNION ALL
    SELECT
        taken.parent_id, 0, 0, 1, (taken.follows IS NULL)::integer, -taken.tree_failed::integer,
        FALSE
    FROM taken
    WHERE taken.tree_completed_at IS NOT NULL AND taken.parent_id IS NOT NULL
    RETURNING change.batch_id
)
SELECT DISTINCT noted.batch_id FROM noted
