-- Count what is ready and what runs, per queue and per keys of jobs.
--
-- Of what runs up to 10,000 are looked at, of what is ready the newest, and the 1,000 oldest
-- once more for how long they wait: of a long queue the oldest are not among the newest. The
-- kinds: 0 counted elsewhere, 1 runs, 2 may run, 3 retries, 4 is scheduled, 5 is held.
-- Parameters: max_jobs integer (how many of the newest are looked at), max_queues integer,
--     max_keys integer
-- Returns: a row per queue of a backend, then one per keys that jobs wait with, those with the
--     most jobs; TRUE for keys; backend and queue_name or concurrency key and rate_limit_keys;
--     how many are ready, run, retry, are scheduled, are held; since when the oldest waits that
--     may run (NULL: none); how many ready jobs were looked at in all queues
-- Locks: none
-- Index: pgjobs_job_running, pgjobs_job_live_pkey
SELECT
    ranked.is_of_keys, ranked.first_name, ranked.second_name, ranked.ready, ranked.running,
    ranked.retrying, ranked.scheduled, ranked.held, ranked.waiting_since, ranked.looked_at
FROM (
    SELECT
        counted.is_of_keys, counted.first_name, counted.second_name, counted.ready,
        counted.running, counted.retrying, counted.scheduled, counted.held,
        counted.waiting_since,
        sum(counted.jobs) FILTER (WHERE NOT counted.is_of_keys) OVER ()::bigint AS looked_at,
        row_number() OVER (
            PARTITION BY counted.is_of_keys
            ORDER BY counted.ready DESC, counted.jobs DESC, counted.first_name, counted.second_name
        ) AS place
    FROM (
        SELECT
            GROUPING(job.queue_name) = 1 AS is_of_keys,
            CASE WHEN GROUPING(job.queue_name) = 1 THEN job.concurrency_key ELSE job.backend END
            AS first_name,
            CASE WHEN GROUPING(job.queue_name) = 1 THEN job.rate_limit_keys ELSE job.queue_name END
            AS second_name,
            count(*) FILTER (WHERE job.kind >= 2) AS jobs,
            count(*) FILTER (WHERE job.kind = 2) AS ready,
            count(*) FILTER (WHERE job.kind = 1) AS running,
            count(*) FILTER (WHERE job.kind = 3) AS retrying,
            count(*) FILTER (WHERE job.kind = 4) AS scheduled,
            count(*) FILTER (WHERE job.kind = 5) AS held,
            min(job.waiting_since) AS waiting_since
        FROM (
            (
                SELECT
                    1 AS kind, job.backend, job.queue_name, job.concurrency_key,
                    job.rate_limit_keys, NULL::timestamptz AS waiting_since
                FROM pgjobs_job_live AS job
                WHERE job.status = 'running'
                ORDER BY job.worker_id, job.id
                LIMIT 10000
            )
            UNION ALL
            (
                SELECT
                    CASE
                        WHEN job.hold IS NOT NULL THEN 5
                        WHEN job.due_at IS NULL THEN 2
                        WHEN job.attempts > 0 THEN 3
                        ELSE 4
                    END,
                    job.backend, job.queue_name, job.concurrency_key, job.rate_limit_keys,
                    CASE WHEN {job.is_ready} THEN {job.waiting_since} END
                FROM pgjobs_job_live AS job
                WHERE job.status = 'ready'
                ORDER BY job.id DESC
                LIMIT %(max_jobs)s::integer
            )
            UNION ALL
            (
                SELECT
                    0, job.backend, job.queue_name, job.concurrency_key, job.rate_limit_keys,
                    CASE WHEN {job.is_ready} THEN {job.waiting_since} END
                FROM pgjobs_job_live AS job
                WHERE job.status = 'ready'
                ORDER BY job.id
                LIMIT 1000
            )
        ) AS job
        GROUP BY GROUPING SETS (
            (job.backend, job.queue_name), (job.concurrency_key, job.rate_limit_keys)
        )
    ) AS counted
    WHERE
        NOT counted.is_of_keys
        OR counted.ready > 0
        AND (counted.first_name IS NOT NULL OR counted.second_name IS NOT NULL)
) AS ranked
WHERE
    ranked.place
    <= CASE WHEN ranked.is_of_keys THEN %(max_keys)s::integer ELSE %(max_queues)s::integer END
ORDER BY ranked.is_of_keys, ranked.place
