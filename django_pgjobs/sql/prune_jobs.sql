-- Delete a page of the oldest jobs that finished with a status longer ago than *retention*.
-- Sections: without `act` nothing is changed, and the rows are the ids of the jobs that would be.
-- Parameters: status text; retention double precision (seconds); max_jobs integer;
--     passed_over bigint[] (jobs that are left alone)
-- Returns: id
-- Locks: the deleted rows, in order of finished_at, SKIP LOCKED
-- Index: pgjobs_job_by_end
WITH taken AS MATERIALIZED (
    SELECT old.id
    FROM pgjobs_job_finished AS old
    WHERE
        old.status = %(status)s::text
        AND old.finished_at
        < statement_timestamp() - make_interval(secs => %(retention)s::double precision)
        AND old.id <> ALL (%(passed_over)s::bigint[])
    ORDER BY old.finished_at
    LIMIT %(max_jobs)s::integer
    FOR UPDATE SKIP LOCKED
)
-- Section: act
DELETE FROM pgjobs_job_finished AS job
WHERE job.status = %(status)s::text AND job.id = ANY (ARRAY(SELECT taken.id FROM taken))
RETURNING job.id
-- Else: act
SELECT taken.id FROM taken
-- End: act
