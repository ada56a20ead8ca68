-- Let jobs whose time has come be claimed, and tell when the next one is due. The note of one that
-- the server refused to promote before goes.
-- Parameters: acts boolean (else nothing is changed); max_jobs integer; passed_over bigint[] (jobs that are left alone)
-- Returns: one row: number of jobs promoted, seconds until the next due job (NULL: none waits),
--     unless it acts the ids of those that would be
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
),
promoted AS (
    UPDATE pgjobs_job_live AS job
    SET
        due_at = NULL,
        note = CASE WHEN starts_with(job.note, 'passed over: ') THEN '' ELSE job.note END
    WHERE
        %(acts)s::boolean
        AND job.id = ANY (ARRAY(SELECT due.id FROM due)) AND job.status = 'ready'
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
    )) - date_part('epoch', statement_timestamp()),
    CASE WHEN NOT %(acts)s::boolean THEN ARRAY(SELECT due.id FROM due) END
