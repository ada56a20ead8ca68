-- List concurrency keys: how many jobs of each run and wait. Those with most waiting jobs, then
-- those with most running ones.
--
-- Jobs are read up to a bound, so the numbers of a large installation are lower bounds.
-- A LIMIT that the planner cannot see makes it walk the index instead of sorting what matches.
-- Parameters: max_jobs (waiting, read), max_running (read), max_keys (returned) integer
-- Returns: key; ready jobs; running jobs; how many may run; pattern of the limit (NULL: as the
--     task says); is the key paused?
-- Locks: none
-- Index: pgjobs_job_ready_lanes, pgjobs_job_key_running, pgjobs_job_key_order
WITH key_pattern AS MATERIALIZED ({pgjobs_concurrency_limit.patterns}),
waiting AS (
    SELECT split_part(bounded.lane, E'\n', 1) AS key, count(*) AS jobs
    FROM (
        SELECT job.lane
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
        ORDER BY job.backend, job.queue_name
        LIMIT (SELECT %(max_jobs)s::integer)
    ) AS bounded
    GROUP BY split_part(bounded.lane, E'\n', 1)
),
running AS (
    SELECT bounded.key, count(*) AS jobs
    FROM (
        SELECT job.concurrency_key AS key
        FROM pgjobs_job_live AS job
        WHERE job.status <> 'ready' AND job.concurrency_key IS NOT NULL
        ORDER BY job.concurrency_key
        LIMIT %(max_running)s::integer
    ) AS bounded
    GROUP BY bounded.key
),
seen AS MATERIALIZED (
    SELECT
        COALESCE(waiting.key, running.key) AS key,
        COALESCE(waiting.jobs, 0) AS waiting, COALESCE(running.jobs, 0) AS running
    FROM waiting
    FULL JOIN running ON running.key = waiting.key
    WHERE COALESCE(waiting.key, running.key) <> ''
    ORDER BY 2 DESC, 3 DESC, 1
    LIMIT %(max_keys)s::integer
)
SELECT
    seen.key, seen.waiting, seen.running,
    COALESCE(found.max_running, declared.jobs, 1), found.pattern,
    EXISTS (
        SELECT FROM pgjobs_pause AS pause
        WHERE
            pause.kind = 'key'
            AND {pause.holds}
            AND seen.key LIKE {pause.name.as_pattern}
    )
FROM seen
LEFT JOIN LATERAL ({seen.key.limit}) AS found ON TRUE
LEFT JOIN LATERAL (
    SELECT own.jobs
    FROM (
        (
            SELECT job.concurrency_limit AS jobs
            FROM pgjobs_job_live AS job
            WHERE
                {job.is_in_line} AND {job.is_walked}
                AND job.concurrency_key = seen.key
            ORDER BY job.concurrency_key, job.id
            LIMIT 1
        )
        UNION ALL
        (
            SELECT job.concurrency_limit
            FROM pgjobs_job_live AS job
            WHERE job.status <> 'ready' AND job.concurrency_key = seen.key
            ORDER BY job.concurrency_key
            LIMIT 1
        )
    ) AS own
    LIMIT 1
) AS declared ON TRUE
ORDER BY seen.waiting DESC, seen.running DESC, seen.key
