-- List what a claim may choose from (choosing.py): of each lane with keys, best rank first, the jobs that may
-- start, and of each lane without keys its best jobs.
--
-- Lanes with keys (one queue, one kind, one priority, the same keys) are walked with a loose index scan, and
-- only by who holds pgjobs_keyed_claim: then what is counted here is the truth until the commit.
-- The first jobs of a lane are locked, so that one that somebody else holds is passed over here.
-- Those behind them are named as well, for a batch that the first ones do not fill. The walk ends
-- when there are enough first jobs of each kind. A *rank* is minus the priority, less the boost of the queue.
-- Parameters: lane_backends, lane_queues text[], lane_asyncs boolean[], floor_urgencies integer[],
--     floor_ids bigint[], lane_boosts integer[] (one entry per lane without keys);
--     segment_backends, segment_queues text[], segment_asyncs boolean[], segment_urgencies,
--     segment_boosts integer[], first_lanes, last_lanes text[] (one entry per segment of lanes with
--     keys, best rank first; last NULL: to the end);
--     full_queues text[] (queues of which the worker takes no job); rooms integer[] (of threads, of
--     the event loop);
--     first_jobs integer (of each lane and weight); passed_over_paths text[] (tasks whose
--     jobs are left alone); worker_id bigint; passed_over bigint[] (jobs that are left alone);
--     takes_tokens boolean (else jobs with rate limits are left alone); skips_locked boolean (jobs
--     without keys that others have locked are left out, and the others locked)
-- Returns: backend, queue_name, rank, lane (NULL: without keys), concurrency key, weight, limit of
--     the key (NULL: as each job says), how many of its jobs run, ids, their limits, their costs,
--     how many more jobs of the queue may start (NULL: any number), is_async, the rate limits as
--     JSON text: [key, tokens]; best rank first, then in the order of the walk
-- Locks: the first jobs of each lane with keys, FOR UPDATE SKIP LOCKED, with skips_locked also those
--     without keys; then the state of their
--     rate limits, in order of key
-- Index: pgjobs_job_ready_lanes, pgjobs_job_key_order, pgjobs_job_key_running, pgjobs_job_ready;
--     pgjobs_job_running, all of it, for each queue whose number of running jobs is limited
WITH turn AS MATERIALIZED (
    SELECT
        COALESCE(current_setting('pgjobs.keyed_claim', TRUE), '') = 'held' AS is_held,
        %(passed_over_paths)s::text[] OPERATOR(pg_catalog.||) paused.paths AS excluded_paths,
        %(full_queues)s::text[] OPERATOR(pg_catalog.||) paused.queues AS excluded_queues,
        paused.key_patterns
    FROM pgjobs_worker AS worker
    CROSS JOIN (
        SELECT
            array_agg(pause.name) FILTER (WHERE pause.kind = 'task') AS paths,
            array_agg(pause.name) FILTER (WHERE pause.kind = 'queue') AS queues,
            -- In the notation of LIKE.
            array_agg({pause.name.as_pattern}) FILTER (WHERE pause.kind = 'key') AS key_patterns
        FROM pgjobs_pause AS pause
        WHERE {pause.holds}
    ) AS paused
    WHERE
        worker.id = %(worker_id)s::bigint AND {worker.is_live}
),
-- For the jobs without keys.
excluded AS MATERIALIZED (SELECT turn.excluded_paths AS task_paths FROM turn),
key_pattern AS MATERIALIZED ({pgjobs_concurrency_limit.patterns}),
-- How many more jobs of a queue may start.
queue_room AS MATERIALIZED (
    SELECT
        queue.queue_name,
        CASE WHEN turn.is_held THEN queue.max_running - (
            SELECT count(*)
            FROM pgjobs_job_live AS job
            WHERE job.status = 'running' AND job.queue_name = queue.queue_name
        ) ELSE 0 END AS jobs
    FROM pgjobs_queue_settings AS queue
    CROSS JOIN turn
    WHERE queue.max_running IS NOT NULL
),
walked AS MATERIALIZED (
    SELECT
        found.backend, found.queue_name, found.is_async, found.rank, found.lane,
        found.concurrency_key,
        found.weight, found.max_running, found.running, found.ids, found.limits, found.costs,
        found.rate_limit_keys, row_number() OVER () AS position
    FROM unnest('{f,t}'::boolean[], %(rooms)s::integer[]) AS kind (is_async, jobs)
    CROSS JOIN LATERAL (
        SELECT
            segment.backend, segment.queue_name, segment.is_async, segment.urgency - segment.boost AS rank,
            head.lane, head.concurrency_key, head.rate_limit_keys,
            maximum.weight, maximum.max_running, maximum.jobs - room.jobs AS running,
            first.ids OPERATOR(pg_catalog.||) following.ids AS ids,
            first.limits OPERATOR(pg_catalog.||) following.limits AS limits,
            first.costs OPERATOR(pg_catalog.||) following.costs AS costs,
            -- One row for each first job, so that the walk ends when there are enough of them.
            counted.nth
        FROM turn
        CROSS JOIN unnest(
            %(segment_backends)s::text[], %(segment_queues)s::text[],
            %(segment_asyncs)s::boolean[], %(segment_urgencies)s::integer[],
            %(segment_boosts)s::integer[], %(first_lanes)s::text[], %(last_lanes)s::text[]
        ) AS segment (backend, queue_name, is_async, urgency, boost, first_lane, last_lane)
        CROSS JOIN LATERAL (
            -- Each step reads four jobs, because most lanes have few: a probe of the index for each lane
            -- would take twice as long. Only a step's last lane has a *next_lane*, where the next one
            -- begins.
            WITH RECURSIVE step AS (
                SELECT
                    segment.first_lane COLLATE "C" AS lane, NULL::bigint AS id,
                    NULL::text COLLATE "C" AS concurrency_key, NULL::integer AS concurrency_limit,
                    FALSE AS skips_waiting, NULL::text COLLATE "C" AS rate_limit_keys,
                    NULL::integer AS rate_cost, segment.first_lane COLLATE "C" AS next_lane
                UNION ALL
                SELECT following.*
                FROM step
                CROSS JOIN LATERAL (
                    SELECT DISTINCT ON (seen.lane)
                        seen.lane, seen.id, seen.concurrency_key::text, seen.concurrency_limit::integer,
                        seen.skips_waiting, seen.rate_limit_keys::text, seen.rate_cost::integer,
                        -- No text lies between a lane and itself with "\x01".
                        CASE WHEN seen.lane = max(seen.lane) OVER () THEN seen.lane || E'\x01' END
                    FROM (
                        SELECT
                            job.lane, job.id, job.concurrency_key, job.concurrency_limit,
                            job.skips_waiting, job.rate_limit_keys, job.rate_cost
                        FROM pgjobs_job_live AS job
                        WHERE
                            {job.is_ready} AND {job.is_walked}
                            AND job.backend = segment.backend AND job.queue_name = segment.queue_name
                            AND job.is_async = segment.is_async
                            AND -job.priority = segment.urgency AND job.lane >= step.next_lane
                        ORDER BY job.lane, job.id
                        LIMIT 4
                    ) AS seen
                    ORDER BY seen.lane, seen.id
                ) AS following
                WHERE
                    step.next_lane IS NOT NULL
                    AND (segment.last_lane IS NULL OR step.next_lane <= segment.last_lane)
            )
            SELECT step.*
            FROM step
            WHERE step.id IS NOT NULL AND (segment.last_lane IS NULL OR step.lane <= segment.last_lane)
        ) AS head
        CROSS JOIN LATERAL ({head.limit_of_key}) AS maximum
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN head.concurrency_key IS NULL THEN kind.jobs
                WHEN head.concurrency_key LIKE ANY (turn.key_patterns) THEN 0
                ELSE maximum.jobs - (
                    SELECT count(*)
                    FROM ({head.concurrency_key.running} LIMIT maximum.jobs) AS running
                )
            END AS jobs
            -- Else the planner copies the expression to each of its uses.
            OFFSET 0
        ) AS room
        CROSS JOIN LATERAL (
            SELECT
                array_agg(locked.id) AS ids, array_agg(locked.concurrency_limit::integer) AS limits,
                array_agg(locked.rate_cost::integer) AS costs, count(*) AS jobs, max(locked.id) AS last_id
            FROM (
                SELECT job.id, job.concurrency_limit, job.rate_cost
                FROM pgjobs_job_live AS job
                WHERE
                    {job.is_ready} AND {job.is_walked}
                    AND job.backend = segment.backend AND job.queue_name = segment.queue_name
                    AND job.is_async = segment.is_async AND -job.priority = segment.urgency
                    -- The jobs of this lane, in an order that one index alone has. No other one, if
                    -- the key keeps its order.
                    AND job.lane >= head.lane
                    AND (job.lane, job.id) <= (head.lane, COALESCE(maximum.next_id, 9223372036854775807))
                    AND job.task_path <> ALL (turn.excluded_paths)
                    AND job.id <> ALL (%(passed_over)s::bigint[])
                ORDER BY job.lane, job.id
                LIMIT LEAST(room.jobs, %(first_jobs)s::integer * maximum.weight)
                FOR UPDATE SKIP LOCKED
            ) AS locked
        ) AS first
        CROSS JOIN LATERAL (
            SELECT
                array_agg(behind.id) AS ids, array_agg(behind.concurrency_limit::integer) AS limits,
                array_agg(behind.rate_cost::integer) AS costs
            FROM (
                SELECT job.id, job.concurrency_limit, job.rate_cost
                FROM pgjobs_job_live AS job
                WHERE
                    {job.is_ready} AND {job.is_walked}
                    AND job.backend = segment.backend AND job.queue_name = segment.queue_name
                    AND job.is_async = segment.is_async
                    AND -job.priority = segment.urgency AND job.lane = head.lane
                    AND job.id > first.last_id
                    AND job.task_path <> ALL (turn.excluded_paths)
                    AND job.id <> ALL (%(passed_over)s::bigint[])
                ORDER BY job.id
                LIMIT CASE WHEN first.jobs = %(first_jobs)s::integer * maximum.weight
                    THEN GREATEST(LEAST(room.jobs, kind.jobs) - first.jobs, 0)
                    ELSE 0
                END
            ) AS behind
        ) AS following
        CROSS JOIN LATERAL generate_series(1, first.jobs) AS counted (nth)
        WHERE
            turn.is_held AND segment.is_async = kind.is_async AND room.jobs > 0
            -- No NOT EXISTS: joined to a hash of the segments, it would lose their order.
            AND segment.queue_name <> ALL (turn.excluded_queues OPERATOR(pg_catalog.||) ARRAY(
                SELECT queue_room.queue_name FROM queue_room WHERE queue_room.jobs <= 0
            ))
            AND (
                head.rate_limit_keys IS NULL
                OR %(takes_tokens)s::boolean AND NOT EXISTS (
                    SELECT FROM pg_catalog.unnest(string_to_array(head.rate_limit_keys, E'\n')) AS rate (key)
                    LEFT JOIN LATERAL ({rate.key.rate_limit}) AS rule ON TRUE
                    LEFT JOIN LATERAL ({rate.key.rate_state}) AS state ON TRUE
                    -- The tokens are counted only where the oldest entry does not tell.
                    WHERE CASE
                        WHEN {state.remaining_at_oldest} < head.rate_cost::bigint THEN TRUE
                        ELSE COALESCE({state.tokens} < head.rate_cost::bigint, TRUE)
                    END
                )
            )
        LIMIT kind.jobs
    ) AS found
    WHERE found.nth = 1
),
rate_key AS MATERIALIZED (
    SELECT DISTINCT rate.key
    FROM walked
    CROSS JOIN pg_catalog.unnest(string_to_array(walked.rate_limit_keys, E'\n')) AS rate (key)
    WHERE walked.rate_limit_keys IS NOT NULL
),
state AS MATERIALIZED (
    SELECT state.key, state.taken_at, state.taken_since
    FROM pgjobs_rate_state AS state
    WHERE state.key = ANY (ARRAY(SELECT rate_key.key FROM rate_key))
    ORDER BY state.key
    FOR UPDATE
),
-- The first job of a key makes its state.
created AS (
    INSERT INTO pgjobs_rate_state (key, next_free)
    SELECT rate_key.key, statement_timestamp()
    FROM rate_key
    WHERE rate_key.key NOT IN (SELECT state.key FROM state)
    ON CONFLICT DO NOTHING
    RETURNING key, taken_at, taken_since
),
budget AS MATERIALIZED (
    SELECT state.key, {state.tokens} AS tokens
    FROM (
        SELECT state.key, state.taken_at, state.taken_since FROM state
        UNION ALL
        SELECT created.key, created.taken_at, created.taken_since FROM created
    ) AS state
    CROSS JOIN LATERAL ({state.key.rate_limit}) AS rule
)
SELECT
    listed.backend, listed.queue_name, listed.rank, listed.lane, listed.concurrency_key,
    listed.weight, listed.max_running, listed.running, listed.ids, listed.limits, listed.costs,
    (SELECT queue_room.jobs FROM queue_room WHERE queue_room.queue_name = listed.queue_name),
    listed.is_async,
    CASE WHEN listed.rate_limit_keys IS NOT NULL THEN (
        SELECT json_agg(json_build_array(rate.key, budget.tokens))::text
        FROM pg_catalog.unnest(string_to_array(listed.rate_limit_keys, E'\n')) AS rate (key)
        LEFT JOIN budget ON budget.key = rate.key
    ) END
FROM (
    SELECT
        walked.backend, walked.queue_name, walked.is_async, walked.rank, walked.lane,
        walked.concurrency_key, walked.weight, walked.max_running, walked.running, walked.ids, walked.limits,
        walked.costs, walked.rate_limit_keys, walked.position
    FROM walked
    UNION ALL
    SELECT
        lane.backend, lane.queue_name, lane.is_async, plain.urgency - lane.boost, NULL, NULL, 1, NULL, 0,
        array_agg(plain.id ORDER BY plain.id), NULL, NULL, NULL, 0
    FROM turn
    CROSS JOIN unnest(
        %(lane_backends)s::text[], %(lane_queues)s::text[], %(lane_asyncs)s::boolean[],
        %(floor_urgencies)s::integer[], %(floor_ids)s::bigint[], %(lane_boosts)s::integer[]
    ) AS lane (backend, queue_name, is_async, floor_urgency, floor_id, boost)
    CROSS JOIN LATERAL (
        SELECT seen.urgency, seen.id
        FROM (
            {lane.claimable_jobs}
            LIMIT (%(rooms)s::integer[])[lane.is_async::integer + 1]
        ) AS seen
        WHERE NOT %(skips_locked)s::boolean
        UNION ALL
        SELECT locked.urgency, locked.id
        FROM (
            {lane.claimable_jobs}
            -- Of each lane its part of a batch: of very many, not all are locked deep.
            LIMIT 1 + (%(rooms)s::integer[])[lane.is_async::integer + 1]
                / cardinality(%(lane_queues)s::text[])
            FOR UPDATE SKIP LOCKED
        ) AS locked
        WHERE %(skips_locked)s::boolean
    ) AS plain
    WHERE lane.queue_name <> ALL (turn.excluded_queues)
    GROUP BY lane.backend, lane.queue_name, lane.is_async, plain.urgency, lane.boost
) AS listed
ORDER BY listed.rank, listed.position
