-- Delete the rows of workers that ended longer ago than *retention*.
-- Parameters: retention double precision (seconds)
-- Returns: nothing
-- Locks: the deleted rows
-- Index: none
DELETE FROM pgjobs_worker AS worker
WHERE
    worker.ended_at
    < statement_timestamp() - make_interval(secs => %(retention)s::double precision)
