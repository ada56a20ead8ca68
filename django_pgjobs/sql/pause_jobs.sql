-- Pause a queue, a task or a key, or change the reason or end of a pause.
-- Parameters: kind text ('queue', 'task' or 'key'); name, reason, paused_by text; resume_at
--     timestamptz or delay double precision (seconds from now): when the pause ends; both NULL:
--     it does not end by itself
-- Returns: one row if this changed anything
-- Locks: the row of the pause; waits for whoever is changing it
-- Index: none
INSERT INTO pgjobs_pause AS pause (kind, name, reason, paused_by, resume_at)
VALUES (
    %(kind)s::text, %(name)s::text, %(reason)s::text, %(paused_by)s::text,
    COALESCE(
        %(resume_at)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay)s::double precision)
    )
)
ON CONFLICT (kind, name) DO UPDATE
SET
    reason = EXCLUDED.reason,
    paused_by = EXCLUDED.paused_by,
    resume_at = EXCLUDED.resume_at,
    -- One that was over is a new one.
    paused_at = CASE
        WHEN pause.resume_at <= statement_timestamp() THEN statement_timestamp()
        ELSE pause.paused_at
    END
WHERE
    (pause.reason, pause.paused_by, pause.resume_at)
    IS DISTINCT FROM (EXCLUDED.reason, EXCLUDED.paused_by, EXCLUDED.resume_at)
RETURNING pause.id
