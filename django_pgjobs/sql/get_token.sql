-- Tell what a token of the HTTP API may do.
-- Parameters: digest text; resolution double precision: of the time of its last use, in seconds
-- Returns: id, name, verbs, queues, tasks, requests per second, when it expires, seconds until then
--     (NULL: never), is its use to be noted?; no row: it is unknown, revoked or has expired
-- Locks: none
-- Index: pgjobs_token_digest_key
SELECT
    token.id, token.name, token.verbs, token.queues, token.tasks, token.per_second,
    date_part('epoch', token.expires_at),
    date_part('epoch', token.expires_at) - date_part('epoch', statement_timestamp()),
    COALESCE(
        token.last_used_at
        < statement_timestamp() - make_interval(secs => %(resolution)s::double precision),
        TRUE
    )
FROM pgjobs_token AS token
WHERE
    token.digest = %(digest)s::text
    AND {token.is_valid}
