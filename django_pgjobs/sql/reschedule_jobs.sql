-- Move waiting jobs to another time. One that is held because a job before it failed does not
-- wait for that one any more.
-- Parameters: ids bigint[]; run_after timestamptz or NULL; delay double precision (seconds) or
--     NULL; both NULL: now; spread double precision (seconds): each job gets a random part of it
--     on top of *delay*
-- Returns: id, queue_name
-- Locks: the rows, in order of id, SKIP LOCKED
-- Index: pgjobs_job_live_pkey
WITH taken AS MATERIALIZED (
    SELECT
        job.id,
        job.hold,
        {job.run_after_as_asked} AS run_after
    FROM pgjobs_job_live AS job
    WHERE job.id = ANY (%(ids)s::bigint[]) AND job.status = 'ready'
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
),
awaited AS MATERIALIZED (
    SELECT edge.id, edge.predecessor_id
    FROM pgjobs_dependency AS edge
    WHERE edge.job_id = ANY (
        ARRAY(SELECT taken.id FROM taken WHERE taken.hold = 'predecessor failed')
    )
),
unfinished AS (
    SELECT job.id
    FROM pgjobs_job_live AS job
    WHERE
        job.id = ANY (ARRAY(SELECT awaited.predecessor_id FROM awaited))
        AND job.status IN ('ready', 'running')
),
waived AS (
    DELETE FROM pgjobs_dependency AS edge
    WHERE edge.id = ANY (
        ARRAY(
            SELECT awaited.id
            FROM awaited
            WHERE awaited.predecessor_id <> ALL (ARRAY(SELECT unfinished.id FROM unfinished))
        )
    )
    RETURNING edge.job_id
),
relief AS (
    SELECT taken.id, taken.hold, taken.run_after, count(waived.job_id) AS steps
    FROM taken
    LEFT JOIN waived ON waived.job_id = taken.id
    GROUP BY taken.id, taken.hold, taken.run_after
)
UPDATE pgjobs_job_live AS job
SET
    run_after = relief.run_after,
    due_at = CASE WHEN relief.run_after > statement_timestamp() THEN relief.run_after END,
    ready_at = CASE
        WHEN relief.run_after > statement_timestamp() THEN relief.run_after
        WHEN job.hold IS NOT NULL THEN statement_timestamp()
        ELSE {job.waiting_since}
    END,
    waits_for = GREATEST(job.waits_for - relief.steps, 0),
    hold = CASE
        WHEN relief.hold IS NULL OR relief.hold <> 'predecessor failed' THEN relief.hold
        WHEN job.waits_for > relief.steps THEN 'dependencies'
    END,
    note = CASE
        WHEN relief.run_after > statement_timestamp() AND starts_with(job.note, 'passed over: ')
            THEN ''
        ELSE job.note
    END
FROM relief
WHERE
    -- Again, for the index: as a join alone it might read all jobs.
    job.id = ANY (ARRAY(SELECT relief.id FROM relief))
    AND job.id = relief.id AND job.status = 'ready'
RETURNING job.id, job.queue_name
