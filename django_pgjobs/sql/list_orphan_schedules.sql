-- List schedules of code that no live worker declares, though there are live workers.
-- Parameters: none
-- Returns: name of each
-- Locks: none
-- Index: none; the schedules are read
SELECT schedule.name
FROM pgjobs_schedule AS schedule
WHERE
    schedule.declared IS NOT NULL AND schedule.retired_at IS NULL
    AND schedule.name <> ALL (
        ARRAY(
            SELECT pg_catalog.unnest(worker.schedule_names)
            FROM pgjobs_worker AS worker
            WHERE {worker.is_live}
        )
    )
    AND EXISTS (SELECT FROM pgjobs_worker AS worker WHERE {worker.is_live})
