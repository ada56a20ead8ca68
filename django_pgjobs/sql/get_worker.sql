-- Read one worker as the list of workers shows it.
-- Parameters: id bigint
-- Returns: as list_workers.sql; no row if there is no such worker
-- Locks: none
-- Index: none
SELECT {worker.as_worker_row}
FROM pgjobs_worker AS worker
WHERE worker.id = %(id)s::bigint
