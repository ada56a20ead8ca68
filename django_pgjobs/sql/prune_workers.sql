-- Delete the rows of workers that ended longer ago than *retention*.
-- Parameters: retention double precision (seconds)
-- Returns: nothing
-- Locks: the deleted rows, SKIP LOCKED
-- Index: none
DELETE FROM pgjobs_worker AS worker
WHERE worker.id = ANY (
    ARRAY(
        SELECT old.id
        FROM pgjobs_worker AS old
        WHERE
            old.ended_at
            < statement_timestamp() - make_interval(secs => %(retention)s::double precision)
        ORDER BY old.id
        FOR UPDATE SKIP LOCKED
    )
)
