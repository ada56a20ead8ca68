-- List what keeps the workflow of a finished job open: its batches that nobody has sealed. Those that a
-- job has opened are sealed with the batch of that job.
-- Parameters: id bigint; max_looked_at integer; max_batches integer
-- Returns: id
-- Locks: none
-- Index: pgjobs_job_finished_pkey, pgjobs_batch_pkey, pgjobs_batch_root, pgjobs_batch_change_batch
WITH tree AS (
    SELECT
        batch.id, batch.follows, batch.opener_id, batch.sealed_at, batch.completed_at,
        batch.cancel_requested_at
    FROM pgjobs_batch AS batch
    WHERE
        batch.root_id = (
            SELECT own.root_id
            FROM pgjobs_batch AS own
            WHERE
                own.id = (
                    SELECT job.batch_id
                    FROM pgjobs_job_finished AS job
                    WHERE job.id = %(id)s::bigint
                )
        )
    ORDER BY batch.root_id DESC, -batch.id DESC
    LIMIT %(max_looked_at)s::integer
)
SELECT tree.id
FROM tree
WHERE
    tree.follows IS NULL AND tree.opener_id IS NULL AND tree.sealed_at IS NULL
    AND tree.completed_at IS NULL AND tree.cancel_requested_at IS NULL
    AND NOT EXISTS (
        SELECT FROM pgjobs_batch_change AS change
        WHERE change.batch_id = tree.id AND (change.seals OR change.cancels)
    )
ORDER BY tree.id
LIMIT %(max_batches)s::integer
