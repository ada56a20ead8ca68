-- List the newest failed jobs of a batch and all below it, with the start of their last error.
--
-- Those of the first batches are found by the index of batches. Where there are more batches, the
-- newest failed jobs of all trees are looked at as well, by their ends: before this one was
-- complete, if it is. That time is not exactly in order with those of its jobs.
-- Parameters: batch_id bigint (at the top); max_batches integer (that are looked through);
--     max_looked_at integer (failed jobs, where there are more batches); max_jobs integer
-- Returns: id, task_path, attempts, how many are allowed (NULL: as declared), finished_at, class
--     and message of the last error; the highest id first
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_job_finished_batch, pgjobs_job_by_end,
--     pgjobs_job_finished_pkey
WITH RECURSIVE {batch_id.tree},
first AS MATERIALIZED (
    -- One more, which tells that there are more.
    SELECT tree.id FROM tree LIMIT %(max_batches)s::integer + 1
),
of_first AS (
    SELECT job.id
    FROM first
    CROSS JOIN LATERAL (
        SELECT old.id
        FROM pgjobs_job_finished AS old
        -- Not "=": the planner would leave the column out of the order.
        WHERE
            old.batch_id >= first.id AND old.batch_id <= first.id AND old.status = 'failed'
            AND {old.is_of_batches}
        ORDER BY old.batch_id DESC, old.status DESC, old.id DESC
        LIMIT %(max_jobs)s::integer
    ) AS job
),
of_newest AS (
    SELECT job.id
    FROM (
        SELECT old.id, old.batch_id, old.finished_at
        FROM pgjobs_job_finished AS old
        WHERE
            old.status = 'failed'
            AND (SELECT count(*) FROM first) > %(max_batches)s::integer
            AND old.finished_at <= (
                SELECT
                    CASE
                        WHEN top.tree_completed_at < statement_timestamp()
                            THEN top.tree_completed_at + interval '10 minutes'
                        ELSE 'infinity'
                    END
                FROM pgjobs_batch AS top
                WHERE top.id = %(batch_id)s::bigint
            )
            -- Nothing of it failed before; and between two bounds the planner walks the index.
            AND old.finished_at >= (
                SELECT top.created_at FROM pgjobs_batch AS top WHERE top.id = %(batch_id)s::bigint
            )
        ORDER BY old.finished_at DESC
        LIMIT %(max_looked_at)s::integer
    ) AS job
    WHERE EXISTS (
        WITH RECURSIVE above AS (
            SELECT job.batch_id AS id
            UNION ALL
            SELECT owner.parent_id
            FROM above
            CROSS JOIN LATERAL (
                SELECT batch.parent_id FROM pgjobs_batch AS batch WHERE batch.id = above.id OFFSET 0
            ) AS owner
            WHERE above.id <> %(batch_id)s::bigint
        )
        SELECT FROM above WHERE above.id = %(batch_id)s::bigint
    )
    ORDER BY job.finished_at DESC
    LIMIT %(max_jobs)s::integer
)
SELECT
    job.id, job.task_path, job.attempts, job.allowed, job.finished_at, job.error_class, job.message
FROM (
    SELECT found.id
    FROM (
        SELECT of_first.id FROM of_first
        UNION
        SELECT of_newest.id FROM of_newest
    ) AS found
    ORDER BY found.id DESC
    LIMIT %(max_jobs)s::integer
) AS newest
CROSS JOIN LATERAL (
    SELECT
        old.id, old.task_path, old.attempts,
        NULLIF(old.max_attempts, 0)::bigint + old.lost_count AS allowed, old.finished_at,
        COALESCE(left(old.errors -> -1 ->> 'exception_class'::text, 200), '') AS error_class,
        COALESCE(left(old.errors -> -1 ->> 'message'::text, 300), '') AS message
    FROM pgjobs_job_finished AS old
    WHERE old.id = newest.id
    OFFSET 0
) AS job
ORDER BY job.id DESC
