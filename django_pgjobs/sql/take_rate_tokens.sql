-- Take tokens of rate limits at the first instant at which every one of them has enough; or take
-- nothing, if that instant is too far away, a limit or a state is not there, or the cost is more
-- than a burst. docs/rate-limits.md derives the formula.
-- Parameters: keys text[] (all different); cost integer (tokens of each); timeout double precision
--     (seconds to that instant at most; NULL: any number)
-- Returns: one row: keys without a limit text[]; keys whose burst is below the cost text[], and
--     the least of these bursts integer; keys without a state text[]; were tokens taken?; seconds
--     until the instant double precision; the instant double precision (seconds since 1970)
-- Locks: the states of the keys, in order of key
-- Index: pgjobs_rate_state_pkey, pgjobs_rate_limit_pkey
WITH rule AS MATERIALIZED (
    SELECT wanted.key, rate.burst, rate.seconds_per_token
    FROM pg_catalog.unnest(%(keys)s::text[]) AS wanted (key)
    LEFT JOIN LATERAL ({wanted.key.rate_limit}) AS rate ON TRUE
),
locked AS MATERIALIZED (
    SELECT state.key, state.next_free
    FROM pgjobs_rate_state AS state
    WHERE state.key = ANY (%(keys)s::text[])
    ORDER BY state.key
    FOR UPDATE
),
-- The clock is read once, when all rows are locked: turns are given in the order of the locks.
moment AS MATERIALIZED (
    SELECT clock_timestamp() AS instant, count(*) AS states
    FROM locked
),
turn AS MATERIALIZED (
    SELECT
        moment.instant,
        -- Exact numbers: a burst may reach further back than the calendar.
        GREATEST(0, max(
            EXTRACT(EPOCH FROM locked.next_free) - EXTRACT(EPOCH FROM moment.instant)
            - (rule.burst - %(cost)s::integer)::numeric * rule.seconds_per_token
        )) AS wait,
        array_remove(array_agg(CASE WHEN rule.burst IS NULL THEN rule.key END), NULL) AS unknown,
        array_remove(
            array_agg(CASE WHEN rule.burst < %(cost)s::integer THEN rule.key END), NULL
        ) AS too_small,
        min(rule.burst) AS least_burst,
        array_remove(array_agg(CASE WHEN locked.key IS NULL THEN rule.key END), NULL) AS missing
    FROM moment
    CROSS JOIN rule
    LEFT JOIN locked ON locked.key = rule.key
    GROUP BY moment.instant
),
taken AS (
    UPDATE pgjobs_rate_state AS state
    SET
        next_free = GREATEST(
            locked.next_free, turn.instant + make_interval(secs => turn.wait::double precision)
        ) + make_interval(secs => (%(cost)s::integer::numeric * rule.seconds_per_token)::double precision)
    FROM turn
    CROSS JOIN rule
    JOIN locked ON locked.key = rule.key
    WHERE
        -- For the index: a join alone would read the states of all keys.
        state.key = ANY (%(keys)s::text[])
        AND state.key = rule.key
        AND cardinality(
            turn.unknown OPERATOR(pg_catalog.||) turn.too_small OPERATOR(pg_catalog.||) turn.missing
        ) = 0
        AND (
            %(timeout)s::double precision IS NULL OR turn.wait::double precision <= %(timeout)s::double precision
        )
    RETURNING state.key
)
SELECT
    turn.unknown, turn.too_small, turn.least_burst, turn.missing, EXISTS (SELECT FROM taken),
    turn.wait::double precision,
    (EXTRACT(EPOCH FROM turn.instant) + turn.wait)::double precision
FROM turn
