-- List rate limits that let a job wait for ever: they are not there, or their burst is below what one
-- start takes. Of those named, and of those that the first ready jobs of a lane wait for. Only the
-- first *max_lanes* lanes are read, those without rate limits included.
-- Parameters: names text[], costs integer[] (of limits that declared tasks name, and the most that
--     a start takes of them); max_lanes, max_keys integer
-- Returns: key; whether ready jobs wait for it; the name and the burst of its limit, and what a
--     start takes (all three NULL: there is no limit); the first key of each limit, or of each name
--     that is to be made, then the second ones and so on: many keys of one hide no other limit
-- Locks: none
-- Index: pgjobs_job_ready_lanes, pgjobs_rate_limit_pkey
WITH RECURSIVE head AS (
    (
        SELECT
            job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
            job.rate_limit_keys, job.rate_cost
        FROM pgjobs_job_live AS job
        WHERE {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM head
    CROSS JOIN LATERAL (
        SELECT
            job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
            job.rate_limit_keys, job.rate_cost
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
            AND (job.backend, job.queue_name, job.is_async, -job.priority, job.lane)
            > (head.backend, head.queue_name, head.is_async, head.urgency, head.lane)
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane, job.id
        LIMIT 1
    ) AS following
),
wanted AS (
    SELECT waited.key, bounded.rate_cost::integer AS cost, TRUE AS has_jobs
    FROM (
        SELECT head.rate_limit_keys, head.rate_cost
        FROM head
        LIMIT %(max_lanes)s::integer
    ) AS bounded
    CROSS JOIN pg_catalog.unnest(string_to_array(bounded.rate_limit_keys, E'\n')) AS waited (key)
    UNION ALL
    SELECT declared.name, declared.cost, FALSE
    FROM unnest(%(names)s::text[], %(costs)s::integer[]) AS declared (name, cost)
    -- A limit for each key that is in use is enough. The character after the colon ends the range.
    WHERE NOT EXISTS (
        SELECT FROM pgjobs_rate_limit AS one
        WHERE one.name > declared.name || ':' AND one.name < declared.name || chr(59)
    )
)
SELECT
    wanted.key, bool_or(wanted.has_jobs) AS has_jobs, rule.name AS limit_name, rule.burst,
    CASE WHEN rule.name IS NOT NULL THEN max(wanted.cost) END AS cost
FROM wanted
LEFT JOIN LATERAL ({wanted.key.rate_limit}) AS rule ON TRUE
WHERE rule.name IS NULL OR wanted.cost > rule.burst
GROUP BY wanted.key, rule.name, rule.burst
ORDER BY
    row_number() OVER (
        PARTITION BY COALESCE(rule.name, split_part(wanted.key, ':', 1)) ORDER BY wanted.key
    ),
    wanted.key
LIMIT %(max_keys)s::integer
