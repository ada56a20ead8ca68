-- Say goodbye: the worker holds no job any more.
-- Parameters: id bigint
-- Returns: nothing
-- Locks: the worker's own row
-- Index: none
UPDATE pgjobs_worker AS worker
SET ended_at = statement_timestamp(), listening = FALSE
WHERE worker.id = %(id)s::bigint AND worker.ended_at IS NULL
