-- List what is paused now: queues, tasks, keys and schedules.
-- Parameters: max_rows integer
-- Returns: kind, name, reason, paused_by; since when, and until when or NULL, as epochs
-- Locks: none
-- Index: none
SELECT
    pause.kind, pause.name, pause.reason, pause.paused_by,
    date_part('epoch', {pause.paused_at.in_calendar}) AS paused_at,
    date_part('epoch', {pause.resume_at.or_never}) AS resume_at
FROM pgjobs_pause AS pause
WHERE {pause.holds}
UNION ALL
SELECT
    'schedule', schedule.name, schedule.pause_reason, schedule.paused_by,
    date_part('epoch', {schedule.paused_at.in_calendar}), NULL
FROM pgjobs_schedule AS schedule
WHERE schedule.paused_at IS NOT NULL AND schedule.retired_at IS NULL
ORDER BY kind, name
LIMIT %(max_rows)s::integer
