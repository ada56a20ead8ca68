-- List a batch and what is below it, level by level, with what is noted and not counted yet.
-- Parameters: batch_id bigint (at the top); behind bigint (the batch right below it where the page
--     before ended, 0 at first); max_children integer (of each batch), max_batches integer,
--     max_named integer
-- Returns: depth, id, parent_id, jobs, successful, failed, cancelled, waits_for (bigint[], of those
--     that it follows up to max_named); owners before what is below them
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_batch_change_batch, pgjobs_batch_edge_pkey
WITH RECURSIVE tree AS (
    SELECT
        0 AS depth, batch.id, batch.parent_id, batch.jobs, batch.successful, batch.failed,
        batch.cancelled
    FROM pgjobs_batch AS batch
    WHERE batch.id = %(batch_id)s::bigint
    UNION ALL
    SELECT
        tree.depth + 1, child.id, child.parent_id, child.jobs, child.successful, child.failed,
        child.cancelled
    FROM tree
    CROSS JOIN LATERAL (
        SELECT
            batch.id, batch.parent_id, batch.jobs, batch.successful, batch.failed, batch.cancelled
        FROM (
            -- Sorted outside: for the order the planner might read all batches.
            SELECT
                below.id, below.parent_id, below.jobs, below.successful, below.failed,
                below.cancelled
            FROM pgjobs_batch AS below
            -- Not "=": where most batches have one parent, the planner reads all for each of them.
            WHERE below.parent_id >= tree.id AND below.parent_id <= tree.id
            OFFSET 0
        ) AS batch
        WHERE tree.depth > 0 OR batch.id > %(behind)s::bigint
        ORDER BY batch.id
        LIMIT %(max_children)s::integer
    ) AS child
)
SELECT
    below.depth, below.id, below.parent_id, below.jobs + noted.jobs,
    below.successful + noted.successful, below.failed + noted.failed,
    below.cancelled + noted.cancelled,
    ARRAY(
        SELECT edge.waits_for
        FROM pgjobs_batch_edge AS edge
        WHERE edge.batch_id = below.id
        ORDER BY edge.waits_for
        LIMIT %(max_named)s::integer
    )
FROM (
    SELECT
        tree.depth, tree.id, tree.parent_id, tree.jobs, tree.successful, tree.failed,
        tree.cancelled
    FROM tree
    LIMIT %(max_batches)s::integer
) AS below
CROSS JOIN LATERAL ({below.uncounted}) AS noted
ORDER BY below.depth, below.id
