-- List what is paused now, except queues.
-- Parameters: max_pauses integer
-- Returns: id, kind, name, reason, paused_by, paused_at, resume_at
-- Locks: none
-- Index: none
SELECT
    pause.id, pause.kind, pause.name, pause.reason, pause.paused_by, pause.paused_at,
    -- For ever is no instant in Python.
    CASE WHEN pause.resume_at < '9999-12-30' THEN pause.resume_at END
FROM pgjobs_pause AS pause
WHERE
    pause.kind <> 'queue'
    AND (pause.resume_at IS NULL OR pause.resume_at > statement_timestamp())
ORDER BY pause.kind, pause.name
LIMIT %(max_pauses)s::integer
