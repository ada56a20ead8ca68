-- List rate limits that are not there: of those named, and of those that ready jobs wait for, which
-- can never start. Only the first *max_lanes* lanes are read, those without rate limits included.
-- Parameters: names text[] (of limits; those that declared tasks name); max_lanes, max_keys integer
-- Returns: key without a limit, and whether ready jobs wait for it; in order of key
-- Locks: none
-- Index: pgjobs_job_ready_lanes, pgjobs_rate_limit_pkey
WITH RECURSIVE head AS (
    (
        SELECT
            job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
            job.rate_limit_keys
        FROM pgjobs_job_live AS job
        WHERE {job.is_ready} AND job.lane IS NOT NULL
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM head
    CROSS JOIN LATERAL (
        SELECT
            job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.lane,
            job.rate_limit_keys
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND job.lane IS NOT NULL
            AND (job.backend, job.queue_name, job.is_async, -job.priority, job.lane)
            > (head.backend, head.queue_name, head.is_async, head.urgency, head.lane)
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.lane
        LIMIT 1
    ) AS following
),
wanted AS (
    SELECT waited.key, TRUE AS has_jobs
    FROM (
        SELECT head.rate_limit_keys
        FROM head
        LIMIT %(max_lanes)s::integer
    ) AS bounded
    CROSS JOIN pg_catalog.unnest(string_to_array(bounded.rate_limit_keys, E'\n')) AS waited (key)
    UNION ALL
    SELECT declared.name, FALSE
    FROM pg_catalog.unnest(%(names)s::text[]) AS declared (name)
    -- A limit for each key that is in use is enough. The character after the colon ends the range.
    WHERE NOT EXISTS (
        SELECT FROM pgjobs_rate_limit AS one
        WHERE one.name > declared.name || ':' AND one.name < declared.name || chr(59)
    )
)
SELECT wanted.key, bool_or(wanted.has_jobs)
FROM wanted
LEFT JOIN LATERAL ({wanted.key.rate_limit}) AS rule ON TRUE
WHERE rule.name IS NULL
GROUP BY wanted.key
ORDER BY wanted.key
LIMIT %(max_keys)s::integer
