-- Close the rows of workers whose lease ran out.
-- Parameters: none
-- Returns: id, name
-- Locks: the closed rows, SKIP LOCKED
-- Index: none
UPDATE pgjobs_worker AS worker
SET ended_at = statement_timestamp(), lost = TRUE, listening = FALSE
WHERE worker.id = ANY (
    ARRAY(
        SELECT expired.id
        FROM pgjobs_worker AS expired
        WHERE expired.ended_at IS NULL AND expired.lease_expires_at <= statement_timestamp()
        ORDER BY expired.id
        FOR UPDATE SKIP LOCKED
    )
)
RETURNING worker.id, worker.name
