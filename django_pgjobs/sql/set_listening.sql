-- Say whether a worker wants to be notified of new jobs.
-- Parameters: id bigint; listening boolean
-- Returns: id, no row if somebody holds the lock of the row: then nothing was said
-- Locks: the worker's own row, SKIP LOCKED
-- Index: none
UPDATE pgjobs_worker AS worker
SET listening = %(listening)s::boolean
WHERE worker.id = (
    SELECT own.id FROM pgjobs_worker AS own WHERE own.id = %(id)s::bigint FOR UPDATE SKIP LOCKED
)
RETURNING worker.id
