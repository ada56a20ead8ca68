-- Give up waiting and failed jobs: they end as cancelled, with a note. What waits for those that
-- waited is resolved.
-- Parameters: ids bigint[]; note text; max_dependencies integer (resolved at most)
-- Returns: id, status before; behind them, without an id, as resolve_dependencies.sql does
-- Locks: the rows, in order of id, SKIP LOCKED; then the jobs that wait for them
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey
WITH waiting AS MATERIALIZED (
    SELECT job.id, job.status
    FROM pgjobs_job_live AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.status = 'ready'
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
),
failed AS MATERIALIZED (
    SELECT job.id, job.status
    FROM pgjobs_job_finished AS job
    -- Not '=': by that the planner may take the index of ends, and read all that failed.
    WHERE
        job.id = ANY (%(ids)s::bigint[])
        AND job.status <> 'successful' AND job.status <> 'cancelled'
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
),
{waiting.leaving},
ended AS (
    UPDATE pgjobs_job AS job
    SET
        {job.end_of_waiting},
        cancel_requested_at = statement_timestamp(),
        note = %(note)s::text
    FROM leaving
    WHERE
        -- Again, for the index: as a join alone it might read all jobs.
        job.id = ANY (ARRAY(SELECT leaving.id FROM leaving))
        AND job.id = leaving.id AND job.status = 'ready'
    RETURNING job.id, job.batch_id, job.status, job.queue_name, job.task_path, {job.key_told}
),
given_up AS (
    UPDATE pgjobs_job_finished AS job
    SET status = 'cancelled', note = %(note)s::text
    WHERE
        job.id = ANY (ARRAY(SELECT failed.id FROM failed))
        AND job.status <> 'successful' AND job.status <> 'cancelled'
    RETURNING job.id, job.batch_id
),
noted AS (
    {ended.changes_of_batches}
    -- Nobody counts them here: the transaction may last.
    RETURNING pg_notify('pgjobs_control', 'batches')
),
changed AS (
    INSERT INTO pgjobs_batch_change (batch_id, failed, cancelled)
    SELECT given_up.batch_id, -count(*), count(*)
    FROM given_up
    WHERE given_up.batch_id IS NOT NULL
    GROUP BY given_up.batch_id
    RETURNING pg_notify('pgjobs_control', 'batches')
),
counted AS (
    {ended.statistics}
)
SELECT ended.id, 'ready' AS status, NULL::bigint AS predecessor_id, NULL::bigint AS job_id
FROM ended
UNION ALL
SELECT given_up.id, 'failed', NULL, NULL FROM given_up
UNION ALL
SELECT NULL, NULL, resolved.predecessor_id, resolved.job_id
FROM pgjobs_resolve_v1(
    ARRAY(SELECT ended.id FROM ended), %(max_dependencies)s::integer
) AS resolved
WHERE resolved.queue_name IS NULL
