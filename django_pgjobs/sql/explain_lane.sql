-- Tell what the claim sees of the lane and of the key of a job that is ready.
--
-- Bounds instead of equality: see explain_place.sql.
-- Parameters: id bigint; max_named integer
-- Returns: one row if the job is ready and has keys: id of the job that the lane is judged by,
--     its cost, how many jobs of the key may run, the pattern of the limit (NULL: as the task
--     says), does the key keep order?, id of the job of the key whose turn it is, how many jobs
--     of the key run (counted up to the limit), the ids of *max_named* of them; as a JSON text
--     the rate limits with too few tokens for the job and the one that the lane is judged by:
--     each [key, name of the limit (null: there is none), count, period (seconds), burst, when
--     the tokens are there], NULL if there are none
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_ready_lanes, pgjobs_job_key_order,
--     pgjobs_job_key_running
SELECT
    head.id, head.rate_cost, maximum.jobs, maximum.pattern,
    maximum.jobs = 1 AND NOT head.skips_waiting,
    (
        SELECT oldest.id
        FROM pgjobs_job_live AS oldest
        WHERE
            {oldest.is_in_line}
            AND oldest.concurrency_key >= job.concurrency_key
            AND oldest.concurrency_key <= job.concurrency_key
        ORDER BY oldest.concurrency_key, oldest.id
        LIMIT 1
    ),
    running.jobs, running.ids, short.rates
FROM pgjobs_job_live AS job
CROSS JOIN LATERAL (
    SELECT first.id, first.rate_cost, first.concurrency_limit, first.skips_waiting
    FROM (
        (
            SELECT
                earlier.id, earlier.rate_cost, earlier.concurrency_limit, earlier.skips_waiting
            FROM pgjobs_job_live AS earlier
            WHERE
                {earlier.is_ready}
                AND earlier.backend = job.backend AND earlier.queue_name = job.queue_name
                AND -earlier.priority = -job.priority
                AND earlier.lane >= job.lane AND earlier.lane <= job.lane
            ORDER BY earlier.lane, earlier.id
            LIMIT 1
        )
        UNION ALL
        SELECT job.id, job.rate_cost, job.concurrency_limit, job.skips_waiting
    ) AS first
    ORDER BY first.id
    LIMIT 1
) AS head
CROSS JOIN LATERAL (
    SELECT
        GREATEST(COALESCE(found.max_running, head.concurrency_limit), 1) AS jobs, found.pattern
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (
        {job.concurrency_key.limit}) AS found ON TRUE
) AS maximum
CROSS JOIN LATERAL (
    SELECT
        count(*) AS jobs,
        (array_agg(bounded.id ORDER BY bounded.id))[:%(max_named)s::integer] AS ids
    FROM (
        SELECT running.id
        FROM pgjobs_job_live AS running
        WHERE running.status <> 'ready' AND running.concurrency_key = job.concurrency_key
        LIMIT maximum.jobs
    ) AS bounded
) AS running
CROSS JOIN LATERAL (
    SELECT json_agg(
        json_build_array(
            rate.key, rule.name, rule.count, rule.period, rule.burst,
            -- What is too far away for a calendar is so for the reader as well.
            LEAST(
                GREATEST(LEAST(state.next_free, '9999-12-30'), '0001-01-02')
                - make_interval(secs => LEAST(GREATEST(
                    (rule.burst - needed.tokens)::double precision * rule.period
                        / (rule.count - rule.burst + 1)::double precision,
                    -1e11
                ), 1e11)), '9999-12-30'
            )
        )
        ORDER BY rate.place
    )::text AS rates
    FROM pg_catalog.unnest(string_to_array(job.rate_limit_keys, E'\n'))
        WITH ORDINALITY AS rate (key, place)
    CROSS JOIN LATERAL (
        SELECT GREATEST(job.rate_cost, head.rate_cost)::bigint AS tokens
    ) AS needed
    LEFT JOIN LATERAL (
        {rate.key.rate_limit}) AS rule ON TRUE
    LEFT JOIN pgjobs_rate_state AS state ON state.key = rate.key
    WHERE
        rule.burst IS NULL
        OR rule.burst::double precision - (GREATEST(0, COALESCE(
            EXTRACT(EPOCH FROM state.next_free) - EXTRACT(EPOCH FROM statement_timestamp()), 0
        )) * (rule.count - rule.burst + 1)::numeric)::double precision
            / rule.period < needed.tokens::double precision
) AS short
WHERE job.id = %(id)s::bigint AND job.status = 'ready' AND job.lane IS NOT NULL
