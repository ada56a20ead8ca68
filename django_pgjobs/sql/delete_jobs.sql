-- Delete finished jobs.
-- Parameters: ids bigint[]
-- Returns: id
-- Locks: the rows, in order of id, SKIP LOCKED
-- Index: pgjobs_job_finished_pkey
DELETE FROM pgjobs_job_finished AS job
WHERE
    job.id = ANY (
        ARRAY(
            SELECT old.id
            FROM pgjobs_job_finished AS old
            WHERE
                old.id = ANY (%(ids)s::bigint[])
                AND old.status IN ('successful', 'failed', 'cancelled')
            ORDER BY old.id
            FOR UPDATE SKIP LOCKED
        )
    )
    AND job.status IN ('successful', 'failed', 'cancelled')
RETURNING job.id
