-- End the pause of a queue, a task or a key.
-- Parameters: kind text ('queue', 'task' or 'key'); name text
-- Returns: one row if there was one: did it still hold?
-- Locks: the row of the pause; waits for whoever is changing it
-- Index: none
DELETE FROM pgjobs_pause AS pause
WHERE pause.kind = %(kind)s::text AND pause.name = %(name)s::text
RETURNING {pause.holds}
