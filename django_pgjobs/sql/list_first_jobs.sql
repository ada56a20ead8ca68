-- List the first ready jobs of each place: of each backend, queue, kind and priority, with keys and
-- without.
-- Parameters: max_lanes integer (places with keys, and without, that are asked); max_next integer
--     (jobs of each)
-- Returns: id, backend, queue_name, task_path, concurrency_key, rate_limit_keys, rate_cost; whether it
--     has keys; since when it waits
-- Locks: none
-- Index: pgjobs_job_ready, pgjobs_job_ready_lanes
WITH RECURSIVE plain AS (
    {plain.plain_places}
    WHERE plain.place < %(max_lanes)s::integer
),
keyed AS (
    {keyed.keyed_places}
    WHERE keyed.place < %(max_lanes)s::integer
)
SELECT plain_job.*
FROM plain
CROSS JOIN LATERAL (
    SELECT {job.as_waiting}
    FROM pgjobs_job_live AS job
    WHERE
        {job.is_ready} AND {job.is_walked} AND job.lane IS NULL
        AND job.backend = plain.backend AND job.queue_name = plain.queue_name
        AND job.is_async = plain.is_async
        -- Equal, in words that leave an order which only this index has.
        AND -job.priority >= plain.urgency AND -job.priority <= plain.urgency
    ORDER BY -job.priority, job.id
    LIMIT %(max_next)s::integer
) AS plain_job
UNION ALL
SELECT keyed_job.*
FROM keyed
CROSS JOIN LATERAL (
    SELECT {job.as_waiting}
    FROM pgjobs_job_live AS job
    WHERE
        {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
        AND job.backend = keyed.backend AND job.queue_name = keyed.queue_name
        AND job.is_async = keyed.is_async AND -job.priority = keyed.urgency
    ORDER BY job.lane, job.id
    LIMIT %(max_next)s::integer
) AS keyed_job
