-- Let jobs whose time has come be claimed, and tell when the next one is due.
-- Sections: without `act` nothing is changed, and the rows are the ids of the jobs that would be.
-- Parameters: max_jobs integer; passed_over bigint[] (jobs that are left alone)
-- Returns: one row: number of jobs promoted, seconds until the next due job (NULL: none waits)
-- Locks: the promoted rows, in order of due_at, SKIP LOCKED
-- Index: pgjobs_job_due
WITH due AS MATERIALIZED (
    SELECT job.id
    FROM pgjobs_job_live AS job
    WHERE
        job.status = 'ready' AND job.due_at IS NOT NULL
        AND job.due_at <= statement_timestamp()
        AND job.id <> ALL (%(passed_over)s::bigint[])
    ORDER BY job.due_at
    LIMIT %(max_jobs)s::integer
    FOR UPDATE SKIP LOCKED
)
-- Section: act
, promoted AS (
    UPDATE pgjobs_job_live AS job
    SET rate_limit_keys = job.rate_limit_keys, due_at = NULL
    WHERE job.id = ANY (ARRAY(SELECT due.id FROM due)) AND job.status = 'ready'
    RETURNING job.id
)
SELECT
    (SELECT count(*) FROM promoted),
    date_part('epoch', (
        SELECT min(job.due_at)
        FROM pgjobs_job_live AS job
        WHERE
            job.status = 'ready' AND job.due_at IS NOT NULL
            AND job.due_at > statement_timestamp() AND job.due_at < 'infinity'
    )) - date_part('epoch', statement_timestamp())
-- Else: act
SELECT due.id FROM due
-- End: act
