-- Delete a page of the oldest jobs that finished with a status longer ago than *retention*.
-- Parameters: status text; retention double precision (seconds); max_jobs integer
-- Returns: id
-- Locks: the deleted rows, in order of finished_at, SKIP LOCKED
-- Index: pgjobs_job_by_end
DELETE FROM pgjobs_job_finished AS job
WHERE job.status = %(status)s::text AND job.id = ANY (
    ARRAY(
        SELECT old.id
        FROM pgjobs_job_finished AS old
        WHERE
            old.status = %(status)s::text
            AND old.finished_at
            < statement_timestamp() - make_interval(secs => %(retention)s::double precision)
        ORDER BY old.finished_at
        LIMIT %(max_jobs)s::integer
        FOR UPDATE SKIP LOCKED
    )
)
RETURNING job.id
