-- List the warnings that are muted, the newest first.
-- Parameters: max_rows integer
-- Returns: kind, subject, reason, muted_by; until when, as an epoch
-- Locks: none
-- Index: none
SELECT
    mute.kind, mute.subject, mute.reason, mute.muted_by,
    date_part('epoch', {mute.until.in_calendar}) AS until
FROM pgjobs_mute AS mute
WHERE mute.until > statement_timestamp()
ORDER BY mute.id DESC
LIMIT %(max_rows)s::integer
