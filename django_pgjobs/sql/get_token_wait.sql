-- Tell when the first jobs of lanes that are short of tokens have enough of them. Lanes are not read
-- if there are fewer than 1,000 states of rate limits and all are full; no more states are looked
-- at for that. Of each place (queue, kind, priority) only the first *max_lanes* lanes with rate limits are
-- read; one of the others is found when the worker looks again.
-- Parameters: max_lanes integer
-- Returns: backend, queue_name, minus the priority, is_async, seconds until the first such lane of them has
--     enough, at least 0.01; no row for what will never have enough
-- Locks: none
-- Index: pgjobs_job_ready_lanes
WITH RECURSIVE head AS (
    (
        SELECT
            job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
            job.rate_limit_keys, job.rate_cost, 1 AS nth
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
            AND (
                SELECT count(*) >= 1000 OR bool_or(state.next_free > statement_timestamp())
                FROM (SELECT any_state.next_free FROM pgjobs_rate_state AS any_state LIMIT 1000)
                    AS state
            )
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT
        following.backend, following.queue_name, following.is_async, following.urgency, following.lane,
        following.rate_limit_keys, following.rate_cost,
        CASE
            WHEN (following.backend, following.queue_name, following.is_async, following.urgency)
                <> (head.backend, head.queue_name, head.is_async, head.urgency) THEN 1
            ELSE head.nth + (head.rate_limit_keys IS NOT NULL)::integer
        END
    FROM head
    CROSS JOIN LATERAL (
        (
            SELECT
                job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
                job.rate_limit_keys, job.rate_cost
            FROM pgjobs_job_live AS job
            WHERE
                {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL AND head.nth < %(max_lanes)s::integer
                AND (job.backend, job.queue_name, job.is_async, -job.priority, job.lane)
                > (head.backend, head.queue_name, head.is_async, head.urgency, head.lane)
            ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane, job.id
            LIMIT 1
        )
        UNION ALL
        -- The next place.
        (
            SELECT
                job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
                job.rate_limit_keys, job.rate_cost
            FROM pgjobs_job_live AS job
            WHERE
                {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL AND head.nth >= %(max_lanes)s::integer
                AND (job.backend, job.queue_name, job.is_async, -job.priority)
                > (head.backend, head.queue_name, head.is_async, head.urgency)
            ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane, job.id
            LIMIT 1
        )
    ) AS following
)
SELECT
    head.backend, head.queue_name, head.urgency, head.is_async,
    min(GREATEST(0.01::double precision, date_part('epoch', wait.until - statement_timestamp())))
FROM head
CROSS JOIN LATERAL (
    SELECT
        max({state.free_at}) AS until,
        bool_and(COALESCE(head.rate_cost <= rule.burst, FALSE)) AS has_an_end
    FROM pg_catalog.unnest(string_to_array(head.rate_limit_keys, E'\n')) AS rate (key)
    CROSS JOIN (SELECT head.rate_cost) AS wanted (cost)
    LEFT JOIN LATERAL ({rate.key.rate_limit}) AS rule ON TRUE
    LEFT JOIN LATERAL ({rate.key.rate_state}) AS state ON TRUE
) AS wait
WHERE wait.has_an_end AND wait.until > statement_timestamp() AND wait.until < '9999-01-01'
GROUP BY head.backend, head.queue_name, head.urgency, head.is_async
