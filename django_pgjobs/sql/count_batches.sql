-- Count the jobs of a batch, or of its whole tree, with what is noted and not counted yet.
-- Parameters: batch_id bigint; of_tree boolean
-- Returns: jobs, successful, failed, cancelled; no row if there is no such batch
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_batch_change_batch
WITH RECURSIVE counted AS (
    SELECT batch.id, batch.jobs, batch.successful, batch.failed, batch.cancelled
    FROM pgjobs_batch AS batch
    WHERE batch.id = %(batch_id)s::bigint
    UNION ALL
    SELECT child.id, child.jobs, child.successful, child.failed, child.cancelled
    FROM counted
    CROSS JOIN LATERAL (
        SELECT batch.id, batch.jobs, batch.successful, batch.failed, batch.cancelled
        FROM pgjobs_batch AS batch
        WHERE
            %(of_tree)s::boolean
            -- Not "=": where most batches have one parent, the planner reads all for each of them.
            AND batch.parent_id >= counted.id AND batch.parent_id <= counted.id
        OFFSET 0
    ) AS child
)
SELECT
    sum(counted.jobs + noted.jobs)::bigint,
    sum(counted.successful + noted.successful)::bigint,
    sum(counted.failed + noted.failed)::bigint,
    sum(counted.cancelled + noted.cancelled)::bigint
FROM counted
CROSS JOIN LATERAL ({counted.uncounted}) AS noted
HAVING count(*) > 0
