-- Delete a page of the batches of trees, the newest first: what is below has the higher ids.
-- Parameters: roots bigint[] (of list_empty_trees: nothing can be added to these any more);
--     max_batches integer
-- Returns: id, parent_id
-- Locks: the batches, SKIP LOCKED; one stays as long as a batch below it is locked
-- Index: pgjobs_batch_root, pgjobs_batch_parent
WITH page AS MATERIALIZED (
    SELECT taken.id
    FROM pg_catalog.unnest(%(roots)s::bigint[]) AS root (id)
    CROSS JOIN LATERAL (
        SELECT batch.id
        FROM pgjobs_batch AS batch
        WHERE batch.root_id = root.id
        ORDER BY batch.root_id, -batch.id
        LIMIT %(max_batches)s::integer
        FOR UPDATE SKIP LOCKED
    ) AS taken
    LIMIT %(max_batches)s::integer
)
DELETE FROM pgjobs_batch AS batch
WHERE
    batch.id = ANY (ARRAY(SELECT page.id FROM page))
    AND (
        SELECT child.id
        FROM pgjobs_batch AS child
        WHERE child.parent_id = batch.id AND child.id NOT IN (SELECT page.id FROM page)
        LIMIT 1
    ) IS NULL
RETURNING batch.id, batch.parent_id
