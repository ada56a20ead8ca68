-- Let time not have passed for pauses and tokens: for the clock of tests, which moves rows.
-- Parameters: read_at, now timestamptz (between these the server's clock went on)
-- Returns: nothing
-- Locks: all pauses and states of rate limits
-- Index: none: a test has few rows
WITH pauses AS (
    UPDATE pgjobs_pause AS pause
    -- For what was written meanwhile less has passed.
    SET resume_at = pause.resume_at
        + (%(now)s::timestamptz - GREATEST(pause.paused_at, %(read_at)s::timestamptz))
    RETURNING pause.name
)
UPDATE pgjobs_rate_state AS state
SET
    next_free = state.next_free + (
        SELECT
            %(now)s::timestamptz - CASE
                WHEN max(taken.at) BETWEEN %(read_at)s::timestamptz AND %(now)s::timestamptz
                    THEN max(taken.at)
                ELSE %(read_at)s::timestamptz
            END
        FROM pg_catalog.unnest(state.taken_at) AS taken (at)
    ),
    taken_at = ARRAY(
        SELECT
            taken.at + (
                %(now)s::timestamptz - CASE
                    WHEN taken.at BETWEEN %(read_at)s::timestamptz AND %(now)s::timestamptz
                        THEN taken.at
                    -- Earlier, or a turn that is to come.
                    ELSE %(read_at)s::timestamptz
                END
            )
        FROM pg_catalog.unnest(state.taken_at) WITH ORDINALITY AS taken (at, number)
        ORDER BY taken.number
    )
