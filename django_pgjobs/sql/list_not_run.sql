-- List what was not begun because a job failed or was cancelled: batches of `gather` and `then` that
-- follow its batch, or one that is complete with that, also behind others.
-- Parameters: id bigint; max_batches integer
-- Returns: id; whether something was cancelled in the batch of the job or in those that it is in
-- Locks: none
-- Index: pgjobs_job_finished_pkey, pgjobs_batch_pkey, pgjobs_batch_edge_waits_for
WITH RECURSIVE above AS (
    SELECT
        batch.id, batch.parent_id, batch.follows,
        batch.cancelled > 0 OR batch.cancel_requested_at IS NOT NULL AS is_cancelled
    FROM pgjobs_batch AS batch
    WHERE
        batch.id = (
            SELECT job.batch_id
            FROM pgjobs_job_finished AS job
            -- Not IN: by that the planner may take the index of ends, and read all of it.
            WHERE job.id = %(id)s::bigint AND job.status <> 'successful'
        )
    UNION ALL
    SELECT
        owner.id, owner.parent_id, owner.follows,
        owner.cancelled > 0 OR owner.cancel_requested_at IS NOT NULL
    FROM above
    INNER JOIN pgjobs_batch AS owner ON owner.id = above.parent_id
    WHERE above.follows IS NULL
),
behind AS (
    SELECT follower.id, follower.follows
    FROM above
    -- As joins these might read all batches, for each step.
    CROSS JOIN LATERAL (
        SELECT one.batch_id
        FROM pgjobs_batch_edge AS one
        WHERE one.waits_for = above.id
        OFFSET 0
    ) AS edge
    INNER JOIN pgjobs_batch AS follower ON follower.id = edge.batch_id
    WHERE {follower.lacks_success}
    UNION
    SELECT follower.id, follower.follows
    FROM behind
    CROSS JOIN LATERAL (
        SELECT one.batch_id
        FROM pgjobs_batch_edge AS one
        WHERE one.waits_for = behind.id
        OFFSET 0
    ) AS edge
    INNER JOIN pgjobs_batch AS follower ON follower.id = edge.batch_id
    WHERE {follower.lacks_success}
)
SELECT behind.id, (SELECT bool_or(above.is_cancelled) FROM above)
FROM behind
WHERE behind.follows IN ('gather', 'completion')
ORDER BY behind.id
LIMIT %(max_batches)s::integer
