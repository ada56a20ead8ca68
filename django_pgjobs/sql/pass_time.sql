-- Let pauses and tokens be older than they are: for the clock of tests, which moves rows.
-- Parameters: seconds double precision
-- Returns: nothing
-- Locks: all pauses and states of rate limits
-- Index: none: a test has few rows
WITH pauses AS (
    UPDATE pgjobs_pause AS pause
    SET resume_at = pause.resume_at - make_interval(secs => %(seconds)s::double precision)
    RETURNING pause.name
)
UPDATE pgjobs_rate_state AS state
SET
    next_free = state.next_free - make_interval(secs => %(seconds)s::double precision),
    taken_at = ARRAY(
        SELECT taken.at - make_interval(secs => %(seconds)s::double precision)
        FROM pg_catalog.unnest(state.taken_at) WITH ORDINALITY AS taken (at, number)
        ORDER BY taken.number
    )
