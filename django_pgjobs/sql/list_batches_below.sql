-- List the batches right below another one that follow certain ones, or none of any.
-- Parameters: parent_id bigint; follows text (NULL: parts); waits_for bigint[] (in order)
-- Returns: id, in order
-- Locks: none
-- Index: pgjobs_batch_parent, pgjobs_batch_edge_pkey
SELECT batch.id
FROM (
    -- Sorted outside: for the order the planner might read all batches.
    SELECT below.id, below.follows
    FROM pgjobs_batch AS below
    WHERE below.parent_id = %(parent_id)s::bigint
    OFFSET 0
) AS batch
WHERE
    batch.follows IS NOT DISTINCT FROM %(follows)s::text
    AND ARRAY(
        SELECT edge.waits_for
        FROM pgjobs_batch_edge AS edge
        WHERE edge.batch_id = batch.id
        ORDER BY edge.waits_for
    ) OPERATOR(pg_catalog.=) %(waits_for)s::bigint[]
ORDER BY batch.id
