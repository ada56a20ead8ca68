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
        WHERE %(of_tree)s::boolean AND batch.parent_id = counted.id
        OFFSET 0
    ) AS child
)
SELECT
    sum(counted.jobs + noted.jobs)::bigint,
    sum(counted.successful + noted.successful)::bigint,
    sum(counted.failed + noted.failed)::bigint,
    sum(counted.cancelled + noted.cancelled)::bigint
FROM counted
CROSS JOIN LATERAL (
    SELECT
        COALESCE(sum(change.jobs), 0)::bigint AS jobs,
        COALESCE(sum(change.successful), 0)::bigint AS successful,
        COALESCE(sum(change.failed), 0)::bigint AS failed,
        COALESCE(sum(change.cancelled), 0)::bigint AS cancelled
    FROM pgjobs_batch_change AS change
    WHERE change.batch_id = counted.id
) AS noted
HAVING count(*) > 0
