-- Say whether a worker wants to be notified of new jobs.
-- Parameters: id bigint; listening boolean
-- Returns: nothing
-- Locks: the worker's own row
-- Index: none
UPDATE pgjobs_worker AS worker
SET listening = %(listening)s::boolean
WHERE worker.id = %(id)s::bigint AND worker.listening <> %(listening)s::boolean
