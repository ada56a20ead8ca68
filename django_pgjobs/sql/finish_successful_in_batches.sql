-- Finish attempts that returned, all of them of jobs of batches: what follows these gets jobs of
-- their results, and the batches have something to count. Of their lists, in order of id, those
-- with which more than *max_streamed* elements come together are left to pages, whole (the elements
-- of a large call count for several), and so is what a cancelled batch would get, and what replaces
-- a result of which a page is still there.
-- Parameters: as finish_successful; max_streamed integer
-- Returns: id of each job that was finished, NULL; behind them NULL, a queue that got jobs
-- Locks: the finished rows, by primary key; waits for whoever has one (a cancel, or what the job
--     itself adds), and where jobs of a half of a result before are made, for whoever counts the
--     batch that gets them
-- Index: pgjobs_job_live_pkey, pgjobs_batch_edge_waits_for, pgjobs_batch_pkey,
--     pgjobs_batch_page_pkey
WITH finished AS (
    {head of finish_successful}
    RETURNING job.id, job.batch_id, job.result
),
touched AS MATERIALIZED (
    SELECT finished.batch_id, count(*) AS successful FROM finished GROUP BY finished.batch_id
),
follower AS MATERIALIZED (
    SELECT
        batch.id, edge.waits_for, batch.takes_items, batch.keeps_none, batch.skips_none,
        batch.is_cancelled, batch.has_pages, batch.weight, batch.more, step.task_path,
        step.queue_name, step.backend, step.priority, step.max_attempts, step.timeout,
        step.correlation_id, step.tags, step.metadata, step.subject, step.max_losses,
        step.on_failure, step.is_declared, step.is_async, step.kwargs,
        COALESCE(step.run_after, statement_timestamp() + make_interval(secs => batch.delay))
            AS run_after,
        COALESCE(step.expires_at, statement_timestamp() + make_interval(secs => batch.expires_in))
            AS expires_at
    FROM touched
    CROSS JOIN LATERAL (
        SELECT each.batch_id, each.waits_for
        FROM pgjobs_batch_edge AS each
        WHERE each.waits_for = touched.batch_id
        OFFSET 0
    ) AS edge
    CROSS JOIN LATERAL (
        SELECT
            follower.id, follower.skips_none, follower.step,
            octet_length(follower.step::text) / 4096 + 1 AS weight,
            follower.follows = 'each item' AS takes_items,
            follower.follows = 'each' AND NOT follower.skips_none AS keeps_none,
            follower.cancel_requested_at IS NOT NULL AS is_cancelled,
            (
                SELECT page.batch_id
                FROM pgjobs_batch_page AS page
                WHERE page.batch_id = follower.id
                LIMIT 1
            ) IS NOT NULL AS has_pages,
            follower.step ->> 'more'::text AS more,
            (follower.step ->> 'delay'::text)::double precision AS delay,
            (follower.step ->> 'expires_in'::text)::double precision AS expires_in
        FROM pgjobs_batch AS follower
        WHERE
            -- Sealed or not: it is opened again by what comes now, of a job that was requeued.
            follower.id = edge.batch_id AND follower.follows IN ('each', 'each item')
        OFFSET 0
    ) AS batch
    CROSS JOIN LATERAL json_populate_record(NULL::pgjobs_job, batch.step) AS step
),
source AS MATERIALIZED (
    SELECT
        finished.id, finished.batch_id AS waits_for, follower.id AS batch_id,
        COALESCE(finished.result, 'null') AS result, follower.is_cancelled, follower.weight,
        COALESCE(follower.takes_items AND json_typeof(finished.result) = 'array', FALSE) AS is_list,
        -- Whoever takes that up waits for the end of the job, and reads its result then.
        former.has_page, follower.is_cancelled OR former.has_page AS is_kept
    FROM finished
    JOIN follower ON follower.waits_for = finished.batch_id
    CROSS JOIN LATERAL (
        SELECT
            follower.has_pages AND (
                SELECT page.batch_id
                FROM pgjobs_batch_page AS page
                WHERE page.batch_id = follower.id AND page.source_id = finished.id
                LIMIT 1
            ) IS NOT NULL AS has_page
        OFFSET 0
    ) AS former
    WHERE
        (finished.result IS NOT NULL OR follower.keeps_none)
        -- What is too large to be arguments is refused here: a page of it could never be read.
        AND CASE
            WHEN octet_length(finished.result::text) + octet_length(follower.more) > 1048574 THEN (
                SELECT bool_and(
                    concat('[', item.value, follower.more, ']')::pgjobs_payload IS NOT NULL
                ) IS NOT FALSE
                FROM json_array_elements(
                    CASE
                        WHEN follower.takes_items AND json_typeof(finished.result) = 'array'
                            THEN finished.result
                        ELSE json_build_array(finished.result)
                    END
                ) AS item (value)
            )
            ELSE TRUE
        END
),
list AS MATERIALIZED (
    SELECT
        source.id, source.waits_for, source.batch_id, source.result,
        sum(json_array_length(source.result) * source.weight)
            OVER (ORDER BY source.id, source.batch_id)
            > %(max_streamed)s::integer AS is_long
    FROM source
    WHERE source.is_list AND NOT source.is_kept
),
streamed AS (
    INSERT INTO pgjobs_job AS job (
        task_path, queue_name, backend, priority, max_attempts, timeout, correlation_id, tags,
        metadata, subject, max_losses, on_failure, is_declared, is_async, args, kwargs,
        batch_id, source_id, run_after, expires_at
    )
    SELECT
        follower.task_path, follower.queue_name, follower.backend, follower.priority,
        follower.max_attempts, follower.timeout, follower.correlation_id, follower.tags,
        follower.metadata, follower.subject, follower.max_losses, follower.on_failure,
        follower.is_declared, follower.is_async,
        concat('[', item.value, follower.more, ']')::json, follower.kwargs, item.batch_id,
        item.source_id, follower.run_after, follower.expires_at
    FROM (
        SELECT
            source.id AS source_id, source.waits_for, source.batch_id, source.result AS value,
            1 AS place
        FROM source
        WHERE NOT (source.is_list OR source.is_kept)
        UNION ALL
        SELECT list.id, list.waits_for, list.batch_id, element.value, element.place
        FROM list
        CROSS JOIN LATERAL json_array_elements(list.result)
            WITH ORDINALITY AS element (value, place)
        WHERE NOT list.is_long
    ) AS item
    JOIN follower ON follower.id = item.batch_id AND follower.waits_for = item.waits_for
    WHERE NOT (follower.skips_none AND json_typeof(item.value) = 'null')
    ORDER BY item.source_id, item.place
    RETURNING job.batch_id, job.queue_name
),
paged AS (
    INSERT INTO pgjobs_batch_page AS page (batch_id, source_id, is_kept)
    SELECT source.batch_id, source.id, TRUE
    FROM source
    WHERE source.is_cancelled AND NOT source.has_page
    UNION ALL
    SELECT list.batch_id, list.id, FALSE FROM list WHERE list.is_long
    RETURNING page.batch_id, page.is_kept
),
begun_anew AS (
    UPDATE pgjobs_batch_page AS page
    SET position = 0
    FROM source
    WHERE
        source.has_page AND page.batch_id = source.batch_id AND page.source_id = source.id
        AND page.position > 0
),
made AS MATERIALIZED (
    SELECT streamed.batch_id, streamed.queue_name, count(*) AS jobs
    FROM streamed
    GROUP BY streamed.batch_id, streamed.queue_name
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, successful, jobs, predecessors)
    SELECT touched.batch_id, touched.successful, 0, 0
    FROM touched
    WHERE touched.batch_id IS NOT NULL
    UNION ALL
    SELECT made.batch_id, 0, made.jobs, 0 FROM made
    UNION ALL
    SELECT paged.batch_id, 0, 0, count(*) FROM paged WHERE NOT paged.is_kept GROUP BY paged.batch_id
)
SELECT finished.id, NULL::text AS queue_name FROM finished
UNION ALL
SELECT NULL, queue.queue_name FROM (SELECT DISTINCT made.queue_name FROM made) AS queue
