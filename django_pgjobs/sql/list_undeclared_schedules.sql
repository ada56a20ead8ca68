-- List schedules of code that no live worker declares, though there are live workers.
-- Parameters: none
-- Returns: name of each
-- Locks: none
-- Index: none; the schedules are read
WITH declared AS MATERIALIZED (
    SELECT DISTINCT pg_catalog.unnest(worker.schedule_names) AS name
    FROM pgjobs_worker AS worker
    WHERE {worker.is_live} AND worker.token_id IS NULL
)
SELECT schedule.name
FROM pgjobs_schedule AS schedule
WHERE
    schedule.declared IS NOT NULL AND schedule.retired_at IS NULL
    -- Looked up in a hash, not compared with each.
    AND schedule.name NOT IN (SELECT declared.name FROM declared WHERE declared.name IS NOT NULL)
    AND EXISTS (
        SELECT FROM pgjobs_worker AS worker WHERE {worker.is_live} AND worker.token_id IS NULL
    )
