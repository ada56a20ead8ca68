-- Add up batches and what is below each, with what is noted and not counted yet.
-- Parameters: ids bigint[]; max_batches integer (of each tree, beyond which it is cut)
-- Returns: id, batches, open and broken (of these, those that are not complete with all
--     below, and that cannot be counted), jobs, successful, failed, cancelled, is_cut (there are
--     more batches); one row for each that is there
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_batch_change_batch
SELECT
    top.id, summed.batches, summed.open, summed.broken, summed.jobs, summed.successful,
    summed.failed, summed.cancelled, summed.batches > %(max_batches)s::integer
FROM pg_catalog.unnest(%(ids)s::bigint[]) AS top (id)
CROSS JOIN LATERAL (
    WITH RECURSIVE tree AS (
        SELECT
            batch.id, batch.tree_completed_at, batch.broken, batch.jobs, batch.successful,
            batch.failed, batch.cancelled
        FROM pgjobs_batch AS batch
        WHERE batch.id = top.id
        UNION ALL
        SELECT
            child.id, child.tree_completed_at, child.broken, child.jobs, child.successful,
            child.failed, child.cancelled
        FROM tree
        CROSS JOIN LATERAL (
            SELECT
                batch.id, batch.tree_completed_at, batch.broken, batch.jobs, batch.successful,
                batch.failed, batch.cancelled
            FROM pgjobs_batch AS batch
            -- Not "=": where most batches have one parent, the planner reads all for each of them.
            WHERE batch.parent_id >= tree.id AND batch.parent_id <= tree.id
            OFFSET 0
        ) AS child
    )
    SELECT
        count(*) AS batches,
        count(*) FILTER (WHERE below.tree_completed_at IS NULL) AS open,
        count(*) FILTER (WHERE below.broken <> '') AS broken,
        COALESCE(sum(below.jobs + noted.jobs), 0)::bigint AS jobs,
        COALESCE(sum(below.successful + noted.successful), 0)::bigint AS successful,
        COALESCE(sum(below.failed + noted.failed), 0)::bigint AS failed,
        COALESCE(sum(below.cancelled + noted.cancelled), 0)::bigint AS cancelled
    FROM (
        SELECT
            tree.id, tree.tree_completed_at, tree.broken, tree.jobs, tree.successful,
            tree.failed, tree.cancelled
        FROM tree
        LIMIT %(max_batches)s::integer + 1
    ) AS below
    CROSS JOIN LATERAL ({below.uncounted}) AS noted
) AS summed
WHERE summed.batches > 0
