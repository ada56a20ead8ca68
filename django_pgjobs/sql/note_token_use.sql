-- Note that a token of the HTTP API was used.
-- Parameters: id bigint; resolution double precision: of the time of its last use, in seconds
-- Returns: nothing
-- Locks: the token's row, SKIP LOCKED
-- Index: pgjobs_token_pkey
UPDATE pgjobs_token AS token
SET last_used_at = statement_timestamp()
WHERE
    token.id = ANY (ARRAY(
        SELECT taken.id
        FROM pgjobs_token AS taken
        WHERE
            taken.id = %(id)s::bigint
            AND COALESCE(
                taken.last_used_at
                < statement_timestamp() - make_interval(secs => %(resolution)s::double precision),
                TRUE
            )
        FOR NO KEY UPDATE SKIP LOCKED
    ))
