-- Tell of each queue what has not finished in it, and what holds for it. Queues are those that have
-- jobs, settings or a pause, those that a live worker names, and those that are given.
--
-- The sizes are as list_sizes.sql tells them. Whether anybody takes the jobs of a queue is asked of
-- the index of each of its backends. Since when the oldest waits is asked of the jobs, never of a
-- sample: of the oldest *max_jobs* of all queues, with a sample of the first 1,000 of these, and of
-- the next ones of each priority. It sorts nothing at its end: the planner, told to avoid that
-- (`time_budget`), would loop over all queues for each of them.
-- Parameters: max_jobs integer (how many are few), max_queues integer; max_sampled integer (queues
--     that a sample has at most); max_lanes integer (backends, queues, kinds and priorities that
--     are asked), max_next integer (jobs of each); also_names text[] (queues that are given);
--     queue_name text (NULL: all queues)
-- Returns: a row of all queues, whose queue_name is NULL, and one of each, unordered; ready, running,
--     scheduled, retrying, blocked, measured_at, is_cut as list_sizes.sql returns them (the first
--     five NULL: not known); since when the oldest waits that may run, or NULL; max_running, boost, note
--     of its settings or NULL; paused_at (NULL: not paused), reason, paused_by, resume_at of its
--     pause; workers that take jobs of it, and their slots; do ready jobs wait in it that no live
--     worker takes?
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_queue_sample_measured, pgjobs_job_ready, pgjobs_job_ready_lanes
WITH {pgjobs_job_live.sizes_now},
first_job AS MATERIALIZED (
    {rows of list_first_jobs}
),
waiting AS MATERIALIZED (
    SELECT each.queue_name, min(each.waiting_since) AS since
    FROM (
        SELECT counted.queue_name, counted.waiting_since FROM counted
        UNION ALL
        SELECT found.queue_name, min({found.waiting_since})
        FROM found
        WHERE EXISTS (SELECT FROM newest) AND {found.is_ready}
        GROUP BY found.queue_name
        UNION ALL
        SELECT first_job.queue_name, first_job.since FROM first_job
    ) AS each
    GROUP BY GROUPING SETS ((each.queue_name), ())
),
paused AS (
    SELECT
        pause.name, pause.paused_at, pause.reason, pause.paused_by,
        {pause.resume_at.or_never} AS resume_at
    FROM pgjobs_pause AS pause
    WHERE pause.kind = 'queue' AND {pause.holds}
),
worker AS MATERIALIZED (
    SELECT live.backends, live.queues, live.excluded_queues, live.slots, {live.claims} AS claims
    FROM pgjobs_worker AS live
    WHERE {live.is_live}
),
unserved AS (
    SELECT DISTINCT waits.queue_name
    FROM (SELECT DISTINCT first_job.backend, first_job.queue_name FROM first_job) AS waits
    WHERE
        NOT EXISTS (
            SELECT
            FROM worker
            WHERE
                worker.claims AND waits.backend = ANY (worker.backends)
                AND (worker.queues IS NULL OR waits.queue_name = ANY (worker.queues))
                AND waits.queue_name <> ALL (worker.excluded_queues)
        )
),
-- Bounded before it is joined: each of these is compared with all that was found above.
seen AS MATERIALIZED (
    SELECT known.queue_name
    FROM (
        SELECT sized.queue_name FROM sized
        UNION
        SELECT NULL
        UNION
        SELECT first_job.queue_name FROM first_job
        UNION
        SELECT given.queue_name
        FROM pg_catalog.unnest(%(also_names)s::text[]) AS given (queue_name)
        UNION
        SELECT paused.name FROM paused
        UNION
        SELECT settings.queue_name FROM pgjobs_queue_settings AS settings
        UNION
        SELECT named.queue_name
        FROM worker CROSS JOIN pg_catalog.unnest(worker.queues) AS named (queue_name)
    ) AS known
    WHERE
        %(queue_name)s::text IS NULL OR known.queue_name IS NULL
        OR known.queue_name = %(queue_name)s::text
    ORDER BY known.queue_name NULLS FIRST
    LIMIT %(max_queues)s::integer + 1
)
SELECT
    seen.queue_name,
    COALESCE(sized.ready, total.least), COALESCE(sized.running, total.least),
    COALESCE(sized.scheduled, total.least), COALESCE(sized.retrying, total.least),
    COALESCE(sized.blocked, total.least), total.measured_at, total.is_cut, waiting.since,
    settings.max_running, settings.boost, settings.note,
    paused.paused_at, paused.reason, paused.paused_by, paused.resume_at,
    serving.workers, serving.slots, unserved.queue_name IS NOT NULL
FROM seen
-- In arrays NULL equals NULL, and unlike IS NOT DISTINCT FROM that can be hashed.
LEFT JOIN sized ON ARRAY[sized.queue_name::text]
    OPERATOR(pg_catalog.=) ARRAY[seen.queue_name::text]
LEFT JOIN (
    SELECT
        every.measured_at, every.is_cut,
        -- What a sample has no row of has no jobs, unless it is of the largest queues only.
        CASE
            WHEN (SELECT few.holds FROM few)
                OR (SELECT count(*) FROM sized) <= %(max_sampled)s::integer THEN 0
        END AS least
    FROM sized AS every
    WHERE every.queue_name IS NULL
) AS total ON TRUE
LEFT JOIN waiting ON ARRAY[waiting.queue_name::text]
    OPERATOR(pg_catalog.=) ARRAY[seen.queue_name::text]
LEFT JOIN paused ON paused.name = seen.queue_name
LEFT JOIN pgjobs_queue_settings AS settings ON settings.queue_name = seen.queue_name
LEFT JOIN unserved ON unserved.queue_name = seen.queue_name
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, COALESCE(sum(worker.slots), 0)::bigint AS slots
    FROM worker
    WHERE
        worker.claims
        AND (worker.queues IS NULL OR seen.queue_name = ANY (worker.queues))
        AND seen.queue_name <> ALL (worker.excluded_queues)
) AS serving
