-- Take tokens of rate limits at the first instant at which every one of them has enough; or take
-- nothing, if that instant is too far away, a limit or a state is not there, or the cost is more
-- than a burst. Turns are in the order of the calls.
-- Parameters: keys text[] (all different); cost integer (tokens of each); timeout double precision
--     (seconds to that instant at most; NULL: any number)
-- Returns: one row: keys without a limit text[]; keys whose burst is below the cost text[], and
--     the least of these bursts integer; keys without a state text[]; were tokens taken?; seconds
--     until the instant double precision; the instant double precision (seconds since 1970)
-- Locks: the states of the keys, in order of key
-- Index: pgjobs_rate_state_pkey, pgjobs_rate_limit_pkey
WITH rule AS MATERIALIZED (
    SELECT wanted.key, rate.count, rate.period, rate.burst, rate.period_in_force
    FROM pg_catalog.unnest(%(keys)s::text[]) AS wanted (key)
    LEFT JOIN LATERAL ({wanted.key.rate_limit}) AS rate ON TRUE
),
locked AS MATERIALIZED (
    SELECT state.key, state.taken_at, state.taken_since
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
        %(cost)s::integer AS cost,
        GREATEST(moment.instant, max({locked.free_at})) AS instant,
        array_remove(array_agg(CASE WHEN rule.burst IS NULL THEN rule.key END), NULL) AS unknown,
        array_remove(
            array_agg(CASE WHEN rule.burst < %(cost)s::integer THEN rule.key END), NULL
        ) AS too_small,
        min(rule.burst) AS least_burst,
        array_remove(array_agg(CASE WHEN locked.key IS NULL THEN rule.key END), NULL) AS missing
    FROM moment
    CROSS JOIN (SELECT %(cost)s::integer) AS wanted (cost)
    CROSS JOIN rule
    LEFT JOIN locked ON locked.key = rule.key
    GROUP BY moment.instant
),
wait AS MATERIALIZED (
    SELECT date_part('epoch', turn.instant - moment.instant) AS seconds
    FROM turn
    CROSS JOIN moment
),
taken AS (
    UPDATE pgjobs_rate_state AS target
    SET
        next_free = recorded.next_free,
        taken_at = recorded.taken_at,
        taken_since = recorded.taken_since
    FROM turn
    CROSS JOIN wait
    CROSS JOIN rule
    JOIN locked AS state ON state.key = rule.key
    CROSS JOIN LATERAL ({turn.recorded}) AS recorded
    WHERE
        -- For the index: a join alone would read the states of all keys.
        target.key = ANY (%(keys)s::text[])
        AND target.key = rule.key
        AND cardinality(
            turn.unknown OPERATOR(pg_catalog.||) turn.too_small OPERATOR(pg_catalog.||) turn.missing
        ) = 0
        AND (
            %(timeout)s::double precision IS NULL OR wait.seconds <= %(timeout)s::double precision
        )
    RETURNING target.key
)
SELECT
    turn.unknown, turn.too_small, turn.least_burst, turn.missing, EXISTS (SELECT FROM taken),
    wait.seconds, date_part('epoch', turn.instant)
FROM turn
CROSS JOIN wait
