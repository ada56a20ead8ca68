-- List the lane of a job that is ready, as list_heads.sql does, but without locks: its first job, by
-- which all of it is judged, and the job itself.
--
-- Bounds instead of equality: see explain_place.sql.
-- Parameters: id bigint; max_named integer
-- Returns: one row if the job is ready and has keys: of the first job and of the job itself, which
--     may be the same one, the ids, their limits, their costs; how many jobs of the key may run
--     (NULL: as each job says), the pattern of that limit, id of the job whose turn it is if the
--     key keeps its order, how many jobs of the key run (counted up to the limit of the first
--     job), the ids of *max_named* of them; the rate limits as JSON text: [key, tokens, when
--     there are enough or null, name of the limit (null: there is none), count, period (seconds),
--     burst]
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_ready_lanes, pgjobs_job_key_order,
--     pgjobs_job_key_running
WITH key_pattern AS MATERIALIZED ({pgjobs_concurrency_limit.patterns})
SELECT
    ARRAY[head.id, job.id],
    ARRAY[head.concurrency_limit::integer, job.concurrency_limit::integer],
    ARRAY[head.rate_cost::integer, job.rate_cost::integer],
    maximum.max_running, maximum.pattern, maximum.next_id, running.jobs, running.ids,
    (
        SELECT json_agg(
            json_build_array(
                rate.key, {state.tokens}, {state.free_at},
                rule.name, rule.count, rule.period, rule.burst
            )
            ORDER BY rate.place
        )::text
        FROM pg_catalog.unnest(string_to_array(job.rate_limit_keys, E'\n'))
            WITH ORDINALITY AS rate (key, place)
        CROSS JOIN (SELECT GREATEST(head.rate_cost, job.rate_cost)) AS wanted (cost)
        LEFT JOIN LATERAL ({rate.key.rate_limit}) AS rule ON TRUE
        LEFT JOIN LATERAL ({rate.key.rate_state}) AS state ON TRUE
    )
FROM pgjobs_job_live AS job
CROSS JOIN LATERAL (
    SELECT
        first.id, first.rate_cost, first.concurrency_key, first.concurrency_limit,
        first.skips_waiting
    FROM (
        (
            SELECT
                earlier.id, earlier.rate_cost, earlier.concurrency_key,
                earlier.concurrency_limit, earlier.skips_waiting
            FROM pgjobs_job_live AS earlier
            WHERE
                {earlier.is_ready} AND {earlier.is_walked}
                AND earlier.backend = job.backend AND earlier.queue_name = job.queue_name
                AND earlier.is_async = job.is_async
                AND -earlier.priority = -job.priority
                AND earlier.lane >= job.lane AND earlier.lane <= job.lane
            ORDER BY earlier.lane, earlier.id
            LIMIT 1
        )
        UNION ALL
        SELECT
            job.id, job.rate_cost, job.concurrency_key, job.concurrency_limit, job.skips_waiting
    ) AS first
    ORDER BY first.id
    LIMIT 1
) AS head
CROSS JOIN LATERAL ({head.limit_of_key}) AS maximum
CROSS JOIN LATERAL (
    SELECT
        count(*) AS jobs,
        (array_agg(bounded.id ORDER BY bounded.id))[:%(max_named)s::integer] AS ids
    FROM ({job.concurrency_key.running} LIMIT maximum.jobs) AS bounded
) AS running
WHERE job.id = %(id)s::bigint AND job.status = 'ready' AND job.lane IS NOT NULL
