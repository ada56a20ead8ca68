-- List batches of which something is noted and not counted yet: a page, in order of id. Broken ones
-- are not listed: they are counted by the sweep. Something is noted also where jobs can be made of a
-- page now, or where it is to be kept, or not any more.
-- Parameters: behind bigint (where the page before ended, 0 at first); max_batches integer
-- Returns: batch_id
-- Locks: none
-- Index: pgjobs_batch_change_batch, pgjobs_batch_page_kept, pgjobs_batch_pkey, pgjobs_job_live_pkey
WITH RECURSIVE changed AS (
    (
        SELECT change.batch_id
        FROM pgjobs_batch_change AS change
        WHERE change.batch_id > %(behind)s::bigint
        ORDER BY change.batch_id
        LIMIT 1
    )
    UNION ALL
    SELECT following.batch_id
    FROM changed
    CROSS JOIN LATERAL (
        SELECT change.batch_id
        FROM pgjobs_batch_change AS change
        WHERE change.batch_id > changed.batch_id
        ORDER BY change.batch_id
        LIMIT 1
    ) AS following
),
paged AS (
    (
        SELECT page.batch_id
        FROM pgjobs_batch_page AS page
        WHERE page.batch_id > %(behind)s::bigint
        ORDER BY page.batch_id
        LIMIT 1
    )
    UNION ALL
    SELECT following.batch_id
    FROM paged
    CROSS JOIN LATERAL (
        SELECT page.batch_id
        FROM pgjobs_batch_page AS page
        WHERE page.batch_id > paged.batch_id
        ORDER BY page.batch_id
        LIMIT 1
    ) AS following
)
SELECT listed.batch_id
FROM (
    (
        SELECT changed.batch_id
        FROM changed
        WHERE {changed.is_countable}
        LIMIT %(max_batches)s::integer
    )
    UNION
    (
        SELECT paged.batch_id
        FROM paged
        WHERE
            {paged.is_countable}
            AND (
                -- Of an EXISTS the planner might make a hash of the pages of all batches. In an
                -- order, here and below, that one index alone has: by the primary key all that a
                -- batch keeps would be read.
                (
                    SELECT page.batch_id
                    FROM (
                        SELECT (
                            SELECT batch.cancel_requested_at
                            FROM pgjobs_batch AS batch
                            WHERE batch.id = paged.batch_id
                            LIMIT 1
                        ) IS NULL AS is_kept
                        OFFSET 0
                    ) AS due
                    CROSS JOIN LATERAL (
                        SELECT each.batch_id
                        FROM pgjobs_batch_page AS each
                        WHERE
                            each.batch_id = paged.batch_id
                            AND each.is_kept >= due.is_kept AND each.is_kept <= due.is_kept
                        ORDER BY each.is_kept, each.source_id
                        LIMIT 1
                    ) AS page
                    LIMIT 1
                ) IS NOT NULL
                OR (
                    SELECT page.batch_id
                    FROM (
                        SELECT each.batch_id, each.source_id
                        FROM pgjobs_batch_page AS each
                        WHERE each.batch_id = paged.batch_id AND each.is_kept < TRUE
                        ORDER BY each.is_kept, each.source_id
                        OFFSET 0
                    ) AS page
                    -- As a join the planner would read all jobs.
                    WHERE (
                        SELECT job.id
                        FROM pgjobs_job_live AS job
                        WHERE job.id = page.source_id
                        LIMIT 1
                    ) IS NULL
                    LIMIT 1
                ) IS NOT NULL
            )
        LIMIT %(max_batches)s::integer
    )
) AS listed
ORDER BY listed.batch_id
LIMIT %(max_batches)s::integer
