-- List the keys of rate limits: what each has left, and how many ready jobs wait with it. Of each
-- limit those with most jobs, then those that are used most.
--
-- Waiting jobs and states are read up to a bound, so the numbers of a large installation are
-- lower bounds.
-- A LIMIT that the planner cannot see makes it walk the index instead of sorting what matches.
-- Parameters: max_jobs (read), max_limits, max_states (read of each limit), max_keys (returned of
--     each limit) integer
-- Returns: name of the limit (NULL: no limit is for the key); key; ready jobs with it; tokens
--     (below zero: so many turns were given ahead; NULL without a limit); seconds until the next
--     token, until all are there; ready jobs with keys of that limit; how many keys it has
--     that jobs wait with or that are not full
-- Locks: none
-- Index: pgjobs_job_ready_lanes, pgjobs_rate_state_pkey
WITH lane AS MATERIALIZED (
    SELECT bounded.lane, count(*) AS jobs
    FROM (
        SELECT job.lane
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NOT NULL
        ORDER BY job.backend, job.queue_name
        LIMIT (SELECT %(max_jobs)s::integer)
    ) AS bounded
    GROUP BY bounded.lane
),
rule AS MATERIALIZED (
    SELECT rate_limit.name
    FROM pgjobs_rate_limit AS rate_limit
    ORDER BY rate_limit.name
    LIMIT %(max_limits)s::integer
),
waiting AS (
    SELECT rate.key, COALESCE(exact.name, general.name) AS name, sum(lane.jobs)::bigint AS jobs
    FROM lane
    CROSS JOIN pg_catalog.unnest(
        string_to_array(substr(lane.lane, POSITION(E'\n' IN lane.lane) + 1), E'\n')
    ) AS rate (key)
    LEFT JOIN rule AS exact ON exact.name = rate.key
    LEFT JOIN rule AS general ON general.name = split_part(rate.key, ':', 1)
    WHERE rate.key <> ''
    GROUP BY rate.key, COALESCE(exact.name, general.name)
),
state AS (
    SELECT rule.name, own.key, own.next_free
    FROM rule
    CROSS JOIN LATERAL (
        (
            SELECT one.key, one.next_free
            FROM pgjobs_rate_state AS one
            WHERE one.key = rule.name
            LIMIT 1
        )
        UNION ALL
        (
            -- The character after the colon ends the range.
            SELECT each.key, each.next_free
            FROM pgjobs_rate_state AS each
            WHERE
                each.key > rule.name || ':' AND each.key < rule.name || chr(59)
                AND POSITION(':' IN rule.name) = 0
            ORDER BY each.key
            LIMIT (SELECT %(max_states)s::integer)
        )
    ) AS own
    WHERE
        own.next_free > statement_timestamp()
        AND (own.key = rule.name OR own.key NOT IN (SELECT other.name FROM rule AS other))
),
known AS (
    SELECT
        COALESCE(state.key, waiting.key) AS key, COALESCE(state.name, waiting.name) AS name,
        COALESCE(waiting.jobs, 0) AS jobs,
        -- A key without a state has all its tokens. For ever is no length of time.
        GREATEST(0, EXTRACT(
            EPOCH FROM LEAST(COALESCE(state.next_free, '0001-01-02'), '9999-12-30')
            - statement_timestamp()
        )::double precision) AS full_in
    FROM state
    FULL JOIN waiting ON waiting.key = state.key
),
ranked AS (
    SELECT
        known.name, known.key, known.jobs, known.full_in,
        row_number() OVER (
            PARTITION BY known.name ORDER BY known.jobs DESC, known.full_in DESC, known.key
        ) AS place,
        sum(known.jobs) OVER (PARTITION BY known.name)::bigint AS jobs_of_limit,
        count(*) OVER (PARTITION BY known.name) AS keys
    FROM known
)
SELECT
    ranked.name, ranked.key, ranked.jobs, {state.tokens},
    GREATEST(0, date_part('epoch', {state.free_at} - statement_timestamp())),
    ranked.full_in, ranked.jobs_of_limit, ranked.keys
FROM ranked
CROSS JOIN (SELECT 1) AS wanted (cost)
LEFT JOIN LATERAL ({ranked.key.rate_limit}) AS rule ON ranked.name IS NOT NULL
LEFT JOIN LATERAL ({ranked.key.rate_state}) AS state ON TRUE
WHERE ranked.place <= %(max_keys)s::integer
ORDER BY ranked.name, ranked.place
