-- End waiting jobs that have expired: nobody has begun them in time, or could. What waits for them
-- is resolved.
-- Parameters: acts boolean (else nothing is changed); max_jobs integer; passed_over bigint[] (jobs that are left alone);
--     note text; max_dependencies integer (resolved at most)
-- Returns: id, task_path, queue_name, attempts, correlation_id, two NULLs; behind them, without an
--     id, as resolve_dependencies.sql does
-- Locks: the rows, in order of expires_at, SKIP LOCKED; then the jobs that wait for them
-- Index: pgjobs_job_expiring
WITH expired AS MATERIALIZED (
    SELECT job.id
    FROM pgjobs_job_live AS job
    WHERE
        job.status = 'ready' AND job.expires_at IS NOT NULL
        -- A subquery hides the value from statistics of other jobs, all of them expired.
        AND job.expires_at <= (SELECT statement_timestamp())
        AND job.id <> ALL (%(passed_over)s::bigint[])
    ORDER BY job.expires_at
    LIMIT %(max_jobs)s::integer
    FOR UPDATE SKIP LOCKED
),
ending AS MATERIALIZED (
    SELECT expired.id FROM expired WHERE %(acts)s::boolean
),
{ending.leaving},
ended AS (
    UPDATE pgjobs_job AS job
    SET
        {job.end_of_waiting},
        note = %(note)s::text
    FROM leaving
    WHERE
        job.id = ANY (ARRAY(SELECT ending.id FROM ending))
        AND job.id = leaving.id AND job.status = 'ready'
    RETURNING
        job.id, job.task_path, job.queue_name, job.attempts, job.correlation_id, job.batch_id,
        job.status, {job.key_told}
),
noted AS (
    {ended.changes_of_batches}
),
counted AS (
    {ended.statistics}
)
SELECT
    ended.id, ended.task_path, ended.queue_name, ended.attempts, ended.correlation_id,
    NULL::bigint AS predecessor_id, NULL::bigint AS job_id
FROM ended
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, resolved.predecessor_id, resolved.job_id
FROM pgjobs_resolve_v1(
    ARRAY(SELECT ended.id FROM ended), %(max_dependencies)s::integer
) AS resolved
WHERE resolved.queue_name IS NULL
UNION ALL
SELECT expired.id, NULL, NULL, NULL, NULL, NULL, NULL FROM expired WHERE NOT %(acts)s::boolean
