-- List what is paused now, except queues.
-- Parameters: max_pauses integer
-- Returns: kind, name, reason, paused_by, paused_at, resume_at
-- Locks: none
-- Index: none
{max_pauses.pauses}
