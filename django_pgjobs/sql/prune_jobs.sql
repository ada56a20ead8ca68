-- Delete a page of the oldest jobs that finished with a status longer ago than *retention*. One that
-- did not succeed stays as long as somebody waits who is still to learn that: a job that is gone
-- counts as a success.
-- Parameters: acts boolean (else nothing is changed); status text;
--     retention, span double precision (seconds); max_jobs integer; passed_over bigint[] (jobs that are left alone)
-- Returns: id of each job that was deleted, or would be
-- Locks: the deleted rows, in order of finished_at, SKIP LOCKED
-- Index: pgjobs_job_by_end, pgjobs_dependency_predecessor_id_job_id_key,
--     pgjobs_job_live_pkey
WITH taken AS MATERIALIZED (
    SELECT old.id
    FROM pgjobs_job_finished AS old
    WHERE {old.is_past_retention} AND old.id <> ALL (%(passed_over)s::bigint[])
    ORDER BY old.finished_at
    LIMIT %(max_jobs)s::integer
    FOR UPDATE SKIP LOCKED
),
deleted AS (
    DELETE FROM pgjobs_job_finished AS job
    WHERE
        %(acts)s::boolean
        AND job.id = ANY (ARRAY(SELECT taken.id FROM taken))
        -- Not by its value: the planner might read all jobs that ended so.
        AND job.status <> 'ready' AND job.status <> 'running'
    RETURNING job.id
)
SELECT deleted.id FROM deleted
UNION ALL
SELECT taken.id FROM taken WHERE NOT %(acts)s::boolean
