-- Claim up to *max_jobs* due jobs, with keys and without, best priority first.
--
-- Jobs with keys are walked lane by lane with a loose index scan (a lane: one queue, one
-- priority, the same keys), each segment of lanes from where the last claim ended, and only by
-- who holds pgjobs_keyed_claim: then what is counted here is the truth until the commit. For
-- each lane: how many may start (`room`), then some of its oldest jobs; if the batch is not full
-- then, its share of what is left. Equal priorities take turns, lane by lane, and with the jobs
-- without keys. A *rank* is minus the priority, less the boost of the queue.
-- Tokens of rate limits are taken of rows that are locked, because tasks take them as well.
-- Sections: without `act` no job is changed, and the rows are the id and task_path of those that
--     would be claimed.
-- Parameters: lane_backends, lane_queues text[], floor_urgencies integer[], floor_ids bigint[],
--     lane_boosts integer[] (one entry per lane without keys);
--     segment_backends, segment_queues text[], segment_urgencies, segment_boosts integer[],
--     first_lanes, last_lanes text[] (one entry per segment of lanes with keys, best rank
--     first; last NULL: to the end);
--     cap_queues text[], caps integer[] (how many jobs of these queues the worker takes);
--     max_jobs integer; first_jobs integer (of each lane and weight, before any gives more);
--     unknown_paths text[] (tasks the worker does not have); worker_id bigint; worker_name text;
--     passed_over bigint[] (jobs that are left alone);
--     takes_tokens boolean (else jobs with rate limits are left alone);
--     detailed boolean, detailed_paths text[] (tasks whose jobs are wanted in full)
-- Returns: as claim_jobs.sql, and the lane (NULL for a job without keys)
-- Locks: the claimed rows and some of their neighbours, FOR UPDATE SKIP LOCKED; then the state
--     of their rate limits, in order of key
-- Index: pgjobs_job_ready_lanes, pgjobs_job_key_order, pgjobs_job_key_running, pgjobs_job_ready;
--     pgjobs_job_running, all of it, for each queue whose number of running jobs is limited
WITH turn AS MATERIALIZED (
    SELECT
        COALESCE(current_setting('pgjobs.keyed_claim', TRUE), '') = 'held' AS is_held,
        %(unknown_paths)s::text[] OPERATOR(pg_catalog.||) paused.paths AS excluded_paths,
        COALESCE(paused.queues, '{}') AS paused_queues, paused.key_patterns
    FROM pgjobs_worker AS worker
    CROSS JOIN (
        SELECT
            array_agg(pause.name) FILTER (WHERE pause.kind = 'task') AS paths,
            array_agg(pause.name) FILTER (WHERE pause.kind = 'queue') AS queues,
            -- In the notation of LIKE.
            array_agg(replace(replace(replace(replace(
                pause.name, E'\\', E'\\\\'), '%%', E'\\%%'), '_', E'\\_'), '*', '%%'
            )) FILTER (WHERE pause.kind = 'key') AS key_patterns
        FROM pgjobs_pause AS pause
        WHERE pause.resume_at IS NULL OR pause.resume_at > statement_timestamp()
    ) AS paused
    WHERE
        worker.id = %(worker_id)s::bigint AND worker.ended_at IS NULL
        AND worker.lease_expires_at > statement_timestamp()
),
-- Patterns of limits, in the notation of LIKE.
key_pattern AS MATERIALIZED (
    SELECT
        maximum.max_running, maximum.weight,
        replace(replace(replace(replace(maximum.pattern, E'\\', E'\\\\'), '%%', E'\\%%'), '_',
            E'\\_'), '*', '%%') AS pattern
    FROM pgjobs_concurrency_limit AS maximum
    WHERE POSITION('*' IN maximum.pattern) > 0
    ORDER BY length(maximum.pattern) DESC
),
-- How many more jobs of a queue may start.
cap AS MATERIALIZED (
    SELECT own.queue_name, own.jobs::bigint
    FROM unnest(%(cap_queues)s::text[], %(caps)s::integer[]) AS own (queue_name, jobs)
    UNION ALL
    SELECT
        queue.queue_name,
        CASE WHEN turn.is_held THEN queue.max_running - (
            SELECT count(*)
            FROM pgjobs_job_live AS job
            WHERE job.status = 'running' AND job.queue_name = queue.queue_name
        ) ELSE 0 END
    FROM pgjobs_queue_settings AS queue
    CROSS JOIN turn
    WHERE queue.max_running IS NOT NULL
),
-- The first jobs of each lane, until there are enough. Rows of one `place` are of one lane, `nth`
-- numbers them. What follows handles many rows, which are narrow for that reason.
opened AS MATERIALIZED (
    SELECT
        walked.position - walked.nth AS place,
        walked.*
    FROM (
        SELECT
            segment.number AS segment, segment.urgency - segment.boost AS rank,
            head.lane, head.concurrency_key, maximum.weight, maximum.last_id,
            row_number() OVER () AS position,
            room.jobs AS room,
            -- NULL where a row says the limit: then all jobs of the key have the same.
            CASE WHEN NOT maximum.is_of_row THEN maximum.jobs - room.jobs END AS running,
            first.*
        FROM turn
        CROSS JOIN unnest(
            %(segment_backends)s::text[], %(segment_queues)s::text[],
            %(segment_urgencies)s::integer[], %(segment_boosts)s::integer[],
            %(first_lanes)s::text[], %(last_lanes)s::text[]
        ) WITH ORDINALITY AS segment (
            backend, queue_name, urgency, boost, first_lane, last_lane, number
        )
        CROSS JOIN LATERAL (
            WITH RECURSIVE step AS (
                (
                    SELECT
                        job.lane, job.id, job.ctid AS tid, job.concurrency_key,
                        job.concurrency_limit, job.skips_waiting, job.rate_limit_keys,
                        job.rate_cost
                    FROM pgjobs_job_live AS job
                    WHERE
                        job.status = 'ready' AND job.due_at IS NULL AND job.hold IS NULL
                        AND job.backend = segment.backend AND job.queue_name = segment.queue_name
                        AND -job.priority = segment.urgency AND job.lane >= segment.first_lane
                    ORDER BY job.lane, job.id
                    LIMIT 1
                )
                UNION ALL
                SELECT following.*
                FROM step
                CROSS JOIN LATERAL (
                    SELECT
                        job.lane, job.id, job.ctid AS tid, job.concurrency_key,
                        job.concurrency_limit, job.skips_waiting, job.rate_limit_keys,
                        job.rate_cost
                    FROM pgjobs_job_live AS job
                    WHERE
                        job.status = 'ready' AND job.due_at IS NULL AND job.hold IS NULL
                        AND job.backend = segment.backend AND job.queue_name = segment.queue_name
                        AND -job.priority = segment.urgency AND job.lane > step.lane
                    ORDER BY job.lane, job.id
                    LIMIT 1
                ) AS following
                WHERE segment.last_lane IS NULL OR step.lane < segment.last_lane
            )
            SELECT step.*
            FROM step
            WHERE segment.last_lane IS NULL OR step.lane <= segment.last_lane
        ) AS head
        CROSS JOIN LATERAL (
            SELECT
                GREATEST(COALESCE(found.max_running, head.concurrency_limit), 1) AS jobs,
                COALESCE(found.weight, 1) AS weight,
                found.max_running IS NOT NULL AS is_of_row,
                CASE
                    WHEN
                        head.concurrency_key IS NOT NULL AND NOT head.skips_waiting
                        AND GREATEST(COALESCE(found.max_running, head.concurrency_limit), 1) = 1
                        THEN head.id
                    ELSE 9223372036854775807
                END AS last_id
            FROM (SELECT) AS one
            LEFT JOIN LATERAL (
                SELECT exact.max_running, exact.weight
                FROM pgjobs_concurrency_limit AS exact
                WHERE exact.pattern = head.concurrency_key
                UNION ALL
                SELECT key_pattern.max_running, key_pattern.weight
                FROM key_pattern
                WHERE head.concurrency_key LIKE key_pattern.pattern
                LIMIT 1
            ) AS found ON TRUE
        ) AS maximum
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN head.concurrency_key IS NULL THEN %(max_jobs)s::integer
                WHEN head.concurrency_key LIKE ANY (turn.key_patterns) THEN 0
                WHEN maximum.last_id = head.id AND head.id <> (
                    SELECT oldest.id
                    FROM pgjobs_job_live AS oldest
                    WHERE
                        oldest.status = 'ready'
                        AND oldest.concurrency_key = head.concurrency_key
                        AND oldest.hold IS NULL AND (
                            oldest.due_at IS NULL
                            OR oldest.due_at IS DISTINCT FROM oldest.run_after
                        )
                    ORDER BY oldest.id
                    LIMIT 1
                ) THEN 0
                ELSE maximum.jobs - (
                    SELECT count(*)
                    FROM (
                        SELECT FROM pgjobs_job_live AS running
                        WHERE
                            running.status <> 'ready'
                            AND running.concurrency_key = head.concurrency_key
                        LIMIT maximum.jobs
                    ) AS running
                )
            END AS jobs
            -- Else the planner copies the expression to each of its uses.
            OFFSET 0
        ) AS room
        CROSS JOIN LATERAL (
            SELECT locked.*, row_number() OVER () AS nth
            FROM (
                SELECT job.id, job.concurrency_limit, job.rate_limit_keys, job.rate_cost
                FROM pgjobs_job_live AS job
                WHERE
                    job.status = 'ready' AND job.due_at IS NULL AND job.hold IS NULL
                    AND job.backend = segment.backend AND job.queue_name = segment.queue_name
                    AND -job.priority = segment.urgency AND job.lane = head.lane
                    AND job.id <= maximum.last_id
                    AND job.task_path <> ALL (turn.excluded_paths)
                    AND job.id <> ALL (%(passed_over)s::bigint[])
                ORDER BY job.id
                LIMIT LEAST(room.jobs, %(first_jobs)s::integer * maximum.weight)
                FOR UPDATE SKIP LOCKED
            ) AS locked
        ) AS first
        WHERE
            turn.is_held
            -- No NOT EXISTS: joined to a hash of the segments, it would lose their order.
            AND segment.queue_name <> ALL (turn.paused_queues OPERATOR(pg_catalog.||) ARRAY(
                SELECT cap.queue_name FROM cap WHERE cap.jobs <= 0
            ))
            AND (
                head.rate_limit_keys IS NULL
                OR %(takes_tokens)s::boolean AND NOT EXISTS (
                    SELECT FROM pg_catalog.unnest(string_to_array(head.rate_limit_keys, E'\n')) AS rate (key)
                    LEFT JOIN LATERAL (
                        SELECT
                            COALESCE(rate_limit.burst, GREATEST(1, rate_limit.count / 20)) AS burst,
                            rate_limit.period, rate_limit.count
                        FROM pgjobs_rate_limit AS rate_limit
                        WHERE rate_limit.name IN (rate.key, split_part(rate.key, ':', 1))
                        ORDER BY rate_limit.name = rate.key DESC
                        LIMIT 1
                    ) AS rule ON TRUE
                    LEFT JOIN pgjobs_rate_state AS state ON state.key = rate.key
                    WHERE
                        rule.burst IS NULL
                        OR rule.burst::double precision - (GREATEST(0, COALESCE(
                            EXTRACT(EPOCH FROM state.next_free)
                            - EXTRACT(EPOCH FROM statement_timestamp()), 0
                        )) * (rule.count - rule.burst + 1)::numeric)::double precision
                            / rule.period < head.rate_cost::double precision
                )
            )
        LIMIT %(max_jobs)s::integer
    ) AS walked
),
-- A lane's part of the batch among the lanes of its rank, by weight; only if it is asked for.
share AS (
    SELECT
        opened.*,
        -- In lanes of this rank and better ones.
        count(*) OVER (ORDER BY opened.rank) AS found,
        ceil(
            %(max_jobs)s::integer::double precision * opened.weight::double precision
            / (
                sum(opened.weight) FILTER (WHERE opened.nth = 1) OVER (PARTITION BY opened.rank)
            )::double precision
        )::bigint AS jobs
    FROM opened
    WHERE NOT (
        SELECT count(*) >= %(max_jobs)s::integer AND min(opened.rank) = max(opened.rank)
        FROM opened
    )
),
keyed AS (
    SELECT
        locked.id, locked.segment, locked.rank, locked.concurrency_key, locked.rate_limit_keys,
        locked.rate_cost, locked.place, locked.nth,
        -- Other jobs of the key may have another limit than the first one of the lane.
        CASE
            WHEN locked.running IS NULL THEN locked.room
            ELSE GREATEST(locked.concurrency_limit, 1) - locked.running
        END AS room,
        (locked.nth - 1) / locked.weight AS round
    FROM (
        SELECT
            opened.id, opened.segment, opened.rank, opened.concurrency_key,
            opened.concurrency_limit, opened.rate_limit_keys, opened.rate_cost,
            opened.running, opened.room, opened.weight, opened.place, opened.nth
        FROM opened
        UNION ALL
        SELECT
            following.id, share.segment, share.rank, share.concurrency_key,
            following.concurrency_limit, following.rate_limit_keys, following.rate_cost,
            share.running, share.room, share.weight, share.place,
            share.nth + row_number() OVER (PARTITION BY share.place ORDER BY following.id)
        FROM share
        CROSS JOIN turn
        CROSS JOIN LATERAL (
            SELECT job.id, job.concurrency_limit, job.rate_limit_keys, job.rate_cost
            FROM pgjobs_job_live AS job
            WHERE
                job.status = 'ready' AND job.due_at IS NULL AND job.hold IS NULL
                AND job.backend = (%(segment_backends)s::text[])[share.segment]
                AND job.queue_name = (%(segment_queues)s::text[])[share.segment]
                AND -job.priority = (%(segment_urgencies)s::integer[])[share.segment]
                AND job.lane = share.lane
                AND job.id > share.id AND job.id <= share.last_id
                AND job.task_path <> ALL (turn.excluded_paths)
                AND job.id <> ALL (%(passed_over)s::bigint[])
            ORDER BY job.id
            LIMIT LEAST(share.room, share.jobs) - share.nth
            FOR UPDATE SKIP LOCKED
        ) AS following
        WHERE
            share.found < %(max_jobs)s::integer
            AND share.nth = %(first_jobs)s::integer * share.weight
            AND share.nth < LEAST(share.room, share.jobs)
    ) AS locked
),
-- One key may have several lanes: other queues, priorities, rate limits.
within_room AS (
    SELECT
        ranked.id, (%(segment_queues)s::text[])[ranked.segment] AS queue_name, ranked.rank,
        ranked.rate_limit_keys, ranked.rate_cost,
        row_number() OVER (
            PARTITION BY ranked.rank ORDER BY ranked.round, ranked.place, ranked.nth
        ) AS turn
    FROM (
        SELECT
            keyed.*,
            row_number() OVER (
                PARTITION BY keyed.concurrency_key
                ORDER BY keyed.rank, keyed.round, keyed.place, keyed.nth
            ) AS place_in_key
        FROM keyed
    ) AS ranked
    WHERE ranked.concurrency_key IS NULL OR ranked.place_in_key <= ranked.room
),
candidate AS MATERIALIZED (
    SELECT
        within_room.id, within_room.queue_name, within_room.rank, within_room.turn,
        within_room.rate_limit_keys, within_room.rate_cost, NULL::text AS backend,
        NULL::integer AS floor_urgency, NULL::bigint AS floor_id
    FROM within_room
    UNION ALL
    SELECT
        NULL, lane.queue_name, plain.urgency - lane.boost,
        row_number() OVER (PARTITION BY plain.urgency - lane.boost ORDER BY plain.id),
        NULL, 0, lane.backend, lane.floor_urgency, lane.floor_id
    FROM turn
    CROSS JOIN unnest(
        %(lane_backends)s::text[], %(lane_queues)s::text[], %(floor_urgencies)s::integer[],
        %(floor_ids)s::bigint[], %(lane_boosts)s::integer[]
    ) AS lane (backend, queue_name, floor_urgency, floor_id, boost)
    CROSS JOIN LATERAL (
        SELECT -job.priority AS urgency, job.id
        FROM pgjobs_job_live AS job
        WHERE
            job.status = 'ready' AND job.due_at IS NULL
            AND job.hold IS NULL AND job.lane IS NULL
            AND job.backend = lane.backend AND job.queue_name = lane.queue_name
            AND (-job.priority, job.id) >= (lane.floor_urgency, lane.floor_id)
            AND job.task_path <> ALL (turn.excluded_paths)
            AND job.id <> ALL (%(passed_over)s::bigint[])
        ORDER BY -job.priority, job.id
        LIMIT %(max_jobs)s::integer
    ) AS plain
    WHERE lane.queue_name <> ALL (turn.paused_queues)
),
chosen AS MATERIALIZED (
    SELECT candidate.*
    FROM candidate
    WHERE candidate.queue_name <> ALL (ARRAY(SELECT cap.queue_name FROM cap))
    UNION ALL
    SELECT
        capped.id, capped.queue_name, capped.rank, capped.turn, capped.rate_limit_keys,
        capped.rate_cost, capped.backend, capped.floor_urgency, capped.floor_id
    FROM (
        SELECT
            candidate.*,
            row_number() OVER (
                PARTITION BY candidate.queue_name ORDER BY candidate.rank, candidate.turn
            ) AS place_in_queue
        FROM candidate
        WHERE candidate.queue_name = ANY (ARRAY(SELECT cap.queue_name FROM cap))
    ) AS capped
    WHERE NOT EXISTS (
        SELECT FROM cap
        WHERE cap.queue_name = capped.queue_name AND cap.jobs < capped.place_in_queue
    )
    ORDER BY rank, turn
    LIMIT %(max_jobs)s::integer
),
demand AS MATERIALIZED (
    SELECT
        chosen.id, rate.key, chosen.rate_cost,
        sum(chosen.rate_cost) OVER (
            PARTITION BY rate.key ORDER BY chosen.rank, chosen.turn, chosen.id
        ) AS cost_so_far
    FROM chosen
    CROSS JOIN pg_catalog.unnest(string_to_array(chosen.rate_limit_keys, E'\n')) AS rate (key)
    WHERE chosen.rate_limit_keys IS NOT NULL
),
state AS MATERIALIZED (
    SELECT state.key, state.next_free
    FROM pgjobs_rate_state AS state
    WHERE state.key = ANY (ARRAY(SELECT demand.key FROM demand))
    ORDER BY state.key
    FOR UPDATE
),
budget AS MATERIALIZED (
    SELECT
        state.key, rule.seconds_per_token,
        rule.burst::double precision - GREATEST(
            0, EXTRACT(EPOCH FROM state.next_free) - EXTRACT(EPOCH FROM statement_timestamp())
        )::double precision / rule.seconds_per_token AS tokens
    FROM state
    CROSS JOIN LATERAL (
        SELECT
            COALESCE(rate_limit.burst, GREATEST(1, rate_limit.count / 20)) AS burst,
            ceil(1000000::double precision * rate_limit.period / (
                rate_limit.count - COALESCE(rate_limit.burst, GREATEST(1, rate_limit.count / 20)) + 1
            )::double precision) / 1000000::double precision AS seconds_per_token
        FROM pgjobs_rate_limit AS rate_limit
        WHERE rate_limit.name IN (state.key, split_part(state.key, ':', 1))
        ORDER BY rate_limit.name = state.key DESC
        LIMIT 1
    ) AS rule
),
-- The first job of a key makes its state and starts with the next claim.
created AS (
    INSERT INTO pgjobs_rate_state (key, next_free)
    SELECT DISTINCT demand.key, statement_timestamp()
    FROM demand
    WHERE demand.key NOT IN (SELECT state.key FROM state)
    ON CONFLICT DO NOTHING
),
granted AS MATERIALIZED (
    SELECT chosen.id
    FROM chosen
    WHERE
        chosen.id IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM demand
            LEFT JOIN budget ON budget.key = demand.key
            WHERE
                demand.id = chosen.id
                AND (budget.key IS NULL OR demand.cost_so_far::double precision > budget.tokens)
        )
),
spent AS (
    UPDATE pgjobs_rate_state AS state
    SET next_free = GREATEST(state.next_free, statement_timestamp())
        + make_interval(secs => taken.cost::double precision * taken.seconds_per_token)
    FROM (
        SELECT budget.key, budget.seconds_per_token, sum(demand.rate_cost) AS cost
        FROM demand
        JOIN granted ON granted.id = demand.id
        JOIN budget ON budget.key = demand.key
        GROUP BY budget.key, budget.seconds_per_token
    ) AS taken
    -- The second condition is for the planner, which would read all states for the first.
    WHERE state.key = taken.key AND state.key = ANY (ARRAY(SELECT demand.key FROM demand))
),
taken AS MATERIALIZED (
    SELECT granted.id FROM granted
    UNION ALL
    SELECT locked.id
    FROM (
        SELECT backend, queue_name, floor_urgency, floor_id, count(*) AS jobs
        FROM chosen
        WHERE chosen.id IS NULL
        GROUP BY backend, queue_name, floor_urgency, floor_id
    ) AS share
    CROSS JOIN turn
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM pgjobs_job_live AS job
        WHERE
            job.status = 'ready' AND job.due_at IS NULL
            AND job.hold IS NULL AND job.lane IS NULL
            AND job.backend = share.backend AND job.queue_name = share.queue_name
            AND (-job.priority, job.id) >= (share.floor_urgency, share.floor_id)
            AND job.task_path <> ALL (turn.excluded_paths)
            AND job.id <> ALL (%(passed_over)s::bigint[])
        ORDER BY -job.priority, job.id
        LIMIT share.jobs
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
-- Section: act
UPDATE pgjobs_job_live AS job
SET
    rate_limit_keys = job.rate_limit_keys,
    status = 'running',
    claim = mod(GREATEST(job.claim, 0), 9000000000000000000) + 1,
    attempts = LEAST(GREATEST(job.attempts, 0), 2147483646) + 1,
    worker_id = %(worker_id)s::bigint,
    worker_ids = CASE
        WHEN array_ndims(job.worker_ids) = 1 AND array_lower(job.worker_ids, 1) = 1
            THEN array_remove(job.worker_ids, NULL)
    END OPERATOR(pg_catalog.||) %(worker_name)s::text,
    started_at = GREATEST(LEAST(job.started_at, statement_timestamp()), 'epoch'),
    last_attempted_at = statement_timestamp(),
    note = ''
WHERE job.id = ANY (ARRAY(SELECT taken.id FROM taken)) AND job.status = 'ready'
RETURNING
    job.id, job.claim, job.attempts, job.max_attempts, job.lost_count, job.max_losses,
    job.timeout, job.priority, job.backend,
    job.queue_name, job.task_path, job.args::text, job.kwargs::text,
    date_part('epoch', statement_timestamp())
    - date_part('epoch', GREATEST(job.enqueued_at, job.run_after)),
    CASE
        WHEN %(detailed)s::boolean OR job.task_path = ANY (%(detailed_paths)s::text[])
            THEN json_build_object(
                'enqueued_at', job.enqueued_at, 'run_after', job.run_after,
                'started_at', job.started_at, 'last_attempted_at', job.last_attempted_at,
                'correlation_id', job.correlation_id, 'tags', job.tags,
                'metadata', job.metadata::text, 'errors', job.errors::text,
                'worker_ids', job.worker_ids
            )::text
    END,
    job.lane
-- Else: act
SELECT job.id, job.task_path
FROM pgjobs_job_live AS job
WHERE job.id = ANY (ARRAY(SELECT taken.id FROM taken)) AND job.status = 'ready'
-- End: act
