-- List what is paused now, except queues.
-- Parameters: max_pauses integer
-- Returns: kind, name, reason, paused_by, paused_at, resume_at
-- Locks: none
-- Index: none
SELECT
    pause.kind, pause.name, pause.reason, pause.paused_by, pause.paused_at,
    {pause.resume_at.or_never}
FROM pgjobs_pause AS pause
WHERE pause.kind <> 'queue' AND {pause.holds}
ORDER BY pause.kind, pause.name
LIMIT %(max_pauses)s::integer
