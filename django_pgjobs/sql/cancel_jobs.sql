-- Cancel jobs: one that waits ends at once, one that runs is asked to end. What waits for those
-- that ended is resolved.
-- Parameters: ids bigint[]; statuses text[] (ready, running or both); max_dependencies integer
--     (resolved at most)
-- Returns: id, status before; behind them, without an id, as resolve_dependencies.sql does
-- Locks: the rows, in order of id, SKIP LOCKED; then the jobs that wait for them
-- Index: pgjobs_job_live_pkey
WITH taken AS MATERIALIZED (
    SELECT job.id, job.status
    FROM pgjobs_job_live AS job
    WHERE
        job.id = ANY (%(ids)s::bigint[]) AND job.status IN ('ready', 'running')
        AND array_position(%(statuses)s::text[], job.status) IS NOT NULL
    ORDER BY job.id
    FOR NO KEY UPDATE SKIP LOCKED
),
waived AS (
    DELETE FROM pgjobs_dependency AS edge
    WHERE edge.job_id = ANY (ARRAY(SELECT taken.id FROM taken WHERE taken.status = 'ready'))
    RETURNING edge.job_id
),
leaving AS (
    -- Counting them lets them go before anything is resolved.
    SELECT taken.id, taken.status, count(waived.job_id) AS steps
    FROM taken
    LEFT JOIN waived ON waived.job_id = taken.id
    GROUP BY taken.id, taken.status
),
moved AS (
    UPDATE pgjobs_job AS job
    SET
        {job.end_of_waiting},
        cancel_requested_at
            = GREATEST(LEAST(job.cancel_requested_at, statement_timestamp()), 'epoch'),
        -- Of a start that is not to come.
        note = ''
    FROM leaving
    WHERE
        -- Again, for the index: as a join alone it might read all jobs.
        job.id = ANY (ARRAY(SELECT leaving.id FROM leaving))
        AND job.id = leaving.id AND leaving.status = 'ready' AND job.status IN ('ready', 'running')
    RETURNING
        job.id, leaving.status, job.batch_id, job.queue_name, job.task_path, {job.key_told}
),
-- Without a word of the status, which is part of the key: a job that adds to its batch has locked
-- that until it ends.
asked AS (
    UPDATE pgjobs_job_live AS job
    SET
        hold = NULL,
        waits_for = GREATEST(job.waits_for - leaving.steps, 0),
        claim = LEAST(GREATEST(job.claim, 0), 9000000000000000000),
        cancel_requested_at
            = GREATEST(LEAST(job.cancel_requested_at, statement_timestamp()), 'epoch'),
        note = CASE WHEN starts_with(job.note, 'passed over: ') THEN '' ELSE job.note END
    FROM leaving
    WHERE
        job.id = ANY (ARRAY(SELECT leaving.id FROM leaving))
        AND job.id = leaving.id AND leaving.status = 'running' AND job.status IN ('ready', 'running')
    RETURNING job.id, leaving.status, job.batch_id
),
cancelled AS (
    SELECT moved.id, moved.status, moved.batch_id FROM moved
    UNION ALL
    SELECT asked.id, asked.status, asked.batch_id FROM asked
),
ended AS (
    SELECT moved.batch_id, 'cancelled' AS status, moved.queue_name, moved.task_path FROM moved
),
noted AS (
    {ended.changes_of_batches}
    -- Nobody counts them here: the transaction may last.
    RETURNING pg_notify('pgjobs_control', 'batches')
),
counted AS (
    {ended.statistics}
)
SELECT cancelled.id, cancelled.status, NULL::bigint AS predecessor_id, NULL::bigint AS job_id
FROM cancelled
UNION ALL
SELECT NULL, NULL, resolved.predecessor_id, resolved.job_id
FROM pgjobs_resolve_v1(
    ARRAY(SELECT cancelled.id FROM cancelled WHERE cancelled.status = 'ready'),
    %(max_dependencies)s::integer
) AS resolved
WHERE resolved.queue_name IS NULL
