-- Delete a page of the states of rate limits that were last used long ago: without a state, as
-- with one that is all free, a key has all its tokens.
-- Parameters: retention double precision (seconds since all was free); max_states integer
-- Returns: nothing
-- Locks: the deleted rows, SKIP LOCKED
-- Index: none
DELETE FROM pgjobs_rate_state AS state
WHERE state.key = ANY (
    ARRAY(
        SELECT old.key
        FROM pgjobs_rate_state AS old
        WHERE
            old.next_free
            < statement_timestamp() - make_interval(secs => %(retention)s::double precision)
        LIMIT %(max_states)s::integer
        FOR UPDATE SKIP LOCKED
    )
)
