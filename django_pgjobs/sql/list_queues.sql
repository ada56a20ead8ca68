-- Tell of each queue what waits and runs in it, and what holds for it. Queues are those that have
-- jobs, settings or a pause, and those that a live worker names.
--
-- Every count is bounded: ready jobs for each backend, queue and kind, with keys and without, the rest
-- for all queues together. So the numbers of a large installation are lower bounds.
--
-- Bounds instead of equality, and an order without expressions: then the index alone is read.
-- Parameters: max_queues, max_ready (of one backend and queue), max_rows (of all), max_due,
--     max_running integer
-- Returns: queue_name; ready; is that a lower bound?; since when its oldest ready job could have
--     run; scheduled; retrying; running; max_running, boost, note of its settings or NULL;
--     paused_at (NULL: not paused), reason, paused_by, resume_at of its pause; live workers that
--     serve it, and their slots
-- Locks: none
-- Index: pgjobs_job_ready, pgjobs_job_ready_lanes, pgjobs_job_due, pgjobs_job_running,
--     pgjobs_job_live_pkey
WITH RECURSIVE plain AS (
    (
        SELECT job.backend, job.queue_name, job.is_async, 1 AS place
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND job.lane IS NULL
        ORDER BY job.backend, job.queue_name, job.is_async
        LIMIT 1
    )
    UNION ALL
    SELECT following.backend, following.queue_name, following.is_async, plain.place + 1
    FROM plain
    CROSS JOIN LATERAL (
        SELECT job.backend, job.queue_name, job.is_async
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND job.lane IS NULL
            AND (job.backend, job.queue_name, job.is_async)
            > (plain.backend, plain.queue_name, plain.is_async)
        ORDER BY job.backend, job.queue_name, job.is_async
        LIMIT 1
    ) AS following
    WHERE plain.place < %(max_queues)s::integer
),
keyed AS (
    (
        SELECT job.backend, job.queue_name, 1 AS place
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND job.lane IS NOT NULL
        ORDER BY job.backend, job.queue_name
        LIMIT 1
    )
    UNION ALL
    SELECT following.backend, following.queue_name, keyed.place + 1
    FROM keyed
    CROSS JOIN LATERAL (
        SELECT job.backend, job.queue_name
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND job.lane IS NOT NULL
            AND (job.backend, job.queue_name) > (keyed.backend, keyed.queue_name)
        ORDER BY job.backend, job.queue_name
        LIMIT 1
    ) AS following
    WHERE keyed.place < %(max_queues)s::integer
),
bound AS MATERIALIZED (
    SELECT LEAST(
        %(max_ready)s::integer,
        %(max_rows)s::integer
        / GREATEST(1, (SELECT count(*) FROM plain) + (SELECT count(*) FROM keyed))
    ) AS jobs
),
counted AS (
    SELECT
        plain.queue_name, found.jobs,
        -- Behind more than can be counted, the oldest job of the lowest priority waits longest.
        LEAST(found.first_id, (
            SELECT job.id
            FROM pgjobs_job_live AS job
            WHERE
                {job.is_ready} AND job.lane IS NULL
                AND job.backend = plain.backend AND job.queue_name = plain.queue_name
                AND job.is_async = plain.is_async
                AND -job.priority = (
                    SELECT -last.priority
                    FROM pgjobs_job_live AS last
                    WHERE
                        {last.is_ready} AND last.lane IS NULL
                        AND last.backend = plain.backend AND last.queue_name = plain.queue_name
                        AND last.is_async = plain.is_async
                    ORDER BY -last.priority DESC
                    LIMIT 1
                )
            ORDER BY job.id
            LIMIT 1
        )) AS first_id
    FROM plain
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(bounded.id) AS first_id
        FROM (
            SELECT job.id
            FROM pgjobs_job_live AS job
            WHERE
                {job.is_ready} AND job.lane IS NULL
                AND job.backend >= plain.backend AND job.backend <= plain.backend
                AND job.queue_name >= plain.queue_name AND job.queue_name <= plain.queue_name
                AND job.is_async >= plain.is_async AND job.is_async <= plain.is_async
            ORDER BY job.backend, job.queue_name, job.is_async
            LIMIT (SELECT bound.jobs + 1 FROM bound)
        ) AS bounded
    ) AS found
    UNION ALL
    SELECT keyed.queue_name, found.jobs, found.first_id
    FROM keyed
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(bounded.id) AS first_id
        FROM (
            SELECT job.id
            FROM pgjobs_job_live AS job
            WHERE
                {job.is_ready} AND job.lane IS NOT NULL
                AND job.backend >= keyed.backend AND job.backend <= keyed.backend
                AND job.queue_name >= keyed.queue_name AND job.queue_name <= keyed.queue_name
            ORDER BY job.backend, job.queue_name
            LIMIT (SELECT bound.jobs + 1 FROM bound)
        ) AS bounded
    ) AS found
),
ready AS (
    SELECT
        counted.queue_name, sum(counted.jobs)::bigint AS jobs,
        bool_or(counted.jobs > bound.jobs) AS is_cut, min(first.since) AS since
    FROM counted
    CROSS JOIN bound
    LEFT JOIN LATERAL (
        SELECT {job.waiting_since} AS since
        FROM pgjobs_job_live AS job
        WHERE job.id = counted.first_id
        LIMIT 1
    ) AS first ON TRUE
    GROUP BY counted.queue_name
),
due AS (
    SELECT
        later.queue_name, count(*) FILTER (WHERE later.attempts = 0) AS scheduled,
        count(*) FILTER (WHERE later.attempts > 0) AS retrying
    FROM (
        SELECT job.queue_name, job.attempts
        FROM pgjobs_job_live AS job
        WHERE job.status = 'ready' AND job.due_at IS NOT NULL
        ORDER BY job.due_at
        LIMIT %(max_due)s::integer
    ) AS later
    GROUP BY later.queue_name
),
running AS (
    SELECT begun.queue_name, count(*) AS jobs
    FROM (
        SELECT job.queue_name
        FROM pgjobs_job_live AS job
        WHERE job.status = 'running'
        ORDER BY job.worker_id, job.id
        LIMIT %(max_running)s::integer
    ) AS begun
    GROUP BY begun.queue_name
),
paused AS (
    SELECT
        pause.name, pause.paused_at, pause.reason, pause.paused_by,
        {pause.resume_at.or_never} AS resume_at
    FROM pgjobs_pause AS pause
    WHERE pause.kind = 'queue' AND {pause.holds}
),
worker AS (
    SELECT live.queues, live.excluded_queues, live.slots
    FROM pgjobs_worker AS live
    WHERE {live.is_live}
),
seen AS (
    SELECT ready.queue_name FROM ready
    UNION
    SELECT due.queue_name FROM due
    UNION
    SELECT running.queue_name FROM running
    UNION
    SELECT paused.name FROM paused
    UNION
    SELECT settings.queue_name FROM pgjobs_queue_settings AS settings
    UNION
    SELECT named.queue_name FROM worker CROSS JOIN pg_catalog.unnest(worker.queues) AS named (queue_name)
)
SELECT
    seen.queue_name, COALESCE(ready.jobs, 0), COALESCE(ready.is_cut, FALSE), ready.since,
    COALESCE(due.scheduled, 0), COALESCE(due.retrying, 0), COALESCE(running.jobs, 0),
    settings.max_running, settings.boost, settings.note,
    paused.paused_at, paused.reason, paused.paused_by, paused.resume_at,
    serving.workers, serving.slots
FROM seen
LEFT JOIN ready ON ready.queue_name = seen.queue_name
LEFT JOIN due ON due.queue_name = seen.queue_name
LEFT JOIN running ON running.queue_name = seen.queue_name
LEFT JOIN paused ON paused.name = seen.queue_name
LEFT JOIN pgjobs_queue_settings AS settings ON settings.queue_name = seen.queue_name
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, COALESCE(sum(worker.slots), 0)::bigint AS slots
    FROM worker
    WHERE
        (worker.queues IS NULL OR seen.queue_name = ANY (worker.queues))
        AND seen.queue_name <> ALL (worker.excluded_queues)
) AS serving
WHERE seen.queue_name IS NOT NULL
ORDER BY seen.queue_name
LIMIT %(max_queues)s::integer
