-- Tell when the first jobs of lanes that are short of tokens have enough of them. Nothing is read if
-- all rate limits are full.
-- Parameters: none
-- Returns: backend, queue_name, minus the priority, seconds until the first such lane of them has
--     enough, at least 0.01; no row for what will never have enough
-- Locks: none
-- Index: pgjobs_job_ready_lanes
WITH RECURSIVE head AS (
    (
        SELECT
            job.backend, job.queue_name, -job.priority AS urgency, job.lane,
            job.rate_limit_keys, job.rate_cost
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND job.lane IS NOT NULL
            AND EXISTS (
                SELECT FROM pgjobs_rate_state AS state
                WHERE state.next_free > statement_timestamp()
            )
        ORDER BY job.backend, job.queue_name, -job.priority, job.lane, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM head
    CROSS JOIN LATERAL (
        SELECT
            job.backend, job.queue_name, -job.priority AS urgency, job.lane,
            job.rate_limit_keys, job.rate_cost
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND job.lane IS NOT NULL
            AND (job.backend, job.queue_name, -job.priority, job.lane)
            > (head.backend, head.queue_name, head.urgency, head.lane)
        ORDER BY job.backend, job.queue_name, -job.priority, job.lane, job.id
        LIMIT 1
    ) AS following
)
SELECT head.backend, head.queue_name, head.urgency, min(GREATEST(0.01::double precision, wait.seconds))
FROM head
CROSS JOIN LATERAL (
    SELECT
        max(
            (head.rate_cost::double precision - {state.tokens})
            * rule.seconds_per_token::double precision
        ) AS seconds,
        bool_and(COALESCE(head.rate_cost <= rule.burst, FALSE)) AS has_an_end
    FROM pg_catalog.unnest(string_to_array(head.rate_limit_keys, E'\n')) AS rate (key)
    LEFT JOIN LATERAL ({rate.key.rate_limit}) AS rule ON TRUE
    LEFT JOIN LATERAL ({rate.key.rate_state}) AS state ON TRUE
) AS wait
WHERE wait.has_an_end AND wait.seconds > 0::double precision AND wait.seconds < 'infinity'
GROUP BY head.backend, head.queue_name, head.urgency
