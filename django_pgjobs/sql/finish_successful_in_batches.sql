-- Finish attempts that returned, all of them of jobs of batches: what follows these gets jobs of
-- their results, and the batches have something to count. Elements beyond *max_streamed* jobs of
-- one statement are left to pages, and so is what a cancelled batch would get, or has kept.
-- Parameters: as finish_successful; max_streamed integer
-- Returns: id of each job that was finished, NULL; behind them NULL, a queue that got jobs
-- Locks: the finished rows, by primary key; waits only for a cancel of the same row
-- Index: pgjobs_job_live_pkey, pgjobs_batch_edge_waits_for, pgjobs_batch_pkey,
--     pgjobs_batch_page_pkey
WITH finished AS (
    {head of finish_successful}
    RETURNING job.id, job.batch_id, job.result
),
follower AS MATERIALIZED (
    SELECT
        batch.id, edge.waits_for, batch.follows, batch.skips_none, batch.is_cancelled, batch.more,
        batch.delay, batch.expires_in, step.task_path, step.queue_name, step.backend, step.priority,
        step.max_attempts, step.timeout, step.correlation_id, step.tags, step.metadata,
        step.subject, step.max_losses, step.on_failure, step.is_declared, step.is_async,
        step.kwargs, step.run_after, step.expires_at
    FROM (SELECT DISTINCT finished.batch_id FROM finished) AS touched
    CROSS JOIN LATERAL (
        SELECT each.batch_id, each.waits_for
        FROM pgjobs_batch_edge AS each
        WHERE each.waits_for = touched.batch_id
        OFFSET 0
    ) AS edge
    CROSS JOIN LATERAL (
        SELECT
            follower.id, follower.follows, follower.skips_none, follower.step,
            follower.cancel_requested_at IS NOT NULL AS is_cancelled,
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
        COALESCE(finished.result, 'null') AS result, each.is_list,
        follower.is_cancelled,
        follower.is_cancelled OR kept.is_there OR each.is_list AND sum(each.jobs)
            OVER (ORDER BY finished.id, follower.id)
            > %(max_streamed)s::integer AS is_paged
    FROM finished
    JOIN follower ON follower.waits_for = finished.batch_id
    CROSS JOIN LATERAL (
        SELECT
            follower.follows = 'each item' AND finished.result IS NOT NULL
            AND json_typeof(finished.result) = 'array' AS is_list,
            CASE
                WHEN follower.follows = 'each item' AND finished.result IS NOT NULL
                    AND json_typeof(finished.result) = 'array'
                    THEN json_array_length(finished.result)
                ELSE 1
            END AS jobs
    ) AS each
    -- Nothing is made yet of a result before, which a cancel has kept: this one takes its place.
    CROSS JOIN LATERAL (
        SELECT (
            SELECT page.batch_id
            FROM pgjobs_batch_page AS page
            WHERE page.batch_id = follower.id AND page.source_id = finished.id AND page.position = 0
            LIMIT 1
        ) IS NOT NULL AS is_there
    ) AS kept
    WHERE
        finished.result IS NOT NULL
        OR (follower.follows = 'each' AND NOT follower.skips_none)
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
        concat('[', item.value, follower.more, ']')::json, follower.kwargs, follower.id, source.id,
        COALESCE(
            follower.run_after, statement_timestamp() + make_interval(secs => follower.delay)
        ),
        COALESCE(
            follower.expires_at, statement_timestamp() + make_interval(secs => follower.expires_in)
        )
    FROM source
    JOIN follower
        ON follower.id = source.batch_id AND follower.waits_for = source.waits_for
    CROSS JOIN LATERAL (
        SELECT source.result AS value, 1 AS place WHERE NOT source.is_list
        UNION ALL
        SELECT element.value, element.place
        FROM json_array_elements(
            CASE WHEN source.is_list THEN source.result ELSE '[]' END
        ) WITH ORDINALITY AS element (value, place)
        WHERE NOT (follower.skips_none AND json_typeof(element.value) = 'null')
    ) AS item
    WHERE NOT source.is_paged
    ORDER BY source.id, item.place
    RETURNING job.batch_id, job.queue_name
),
paged AS (
    INSERT INTO pgjobs_batch_page AS page (batch_id, source_id, is_kept)
    SELECT source.batch_id, source.id, source.is_cancelled FROM source WHERE source.is_paged
    ON CONFLICT DO NOTHING
    RETURNING page.batch_id, page.is_kept
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, successful, jobs, predecessors)
    SELECT finished.batch_id, count(*), 0, 0
    FROM finished
    WHERE finished.batch_id IS NOT NULL
    GROUP BY finished.batch_id
    UNION ALL
    SELECT streamed.batch_id, 0, count(*), 0 FROM streamed GROUP BY streamed.batch_id
    UNION ALL
    SELECT paged.batch_id, 0, 0, count(*) FROM paged WHERE NOT paged.is_kept GROUP BY paged.batch_id
)
SELECT finished.id, NULL::text AS queue_name FROM finished
UNION ALL
SELECT NULL, queue.queue_name
FROM (SELECT DISTINCT streamed.queue_name FROM streamed) AS queue
