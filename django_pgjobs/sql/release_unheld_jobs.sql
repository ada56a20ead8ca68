-- Return jobs that this worker claimed without hearing of it: the answer to a claim was lost
-- with its connection. They never started here, so the attempt does not count. A job that
-- somebody asked to cancel meanwhile ends here instead, and is counted here.
-- Parameters: acts boolean (else nothing is changed); worker_id bigint; held_ids bigint[] (the jobs the worker knows of);
--     max_jobs integer; note text; max_dependencies integer (resolved at most)
-- Returns: id of each job that was returned or cancelled
-- Locks: the returned rows, in order of id, SKIP LOCKED; then the jobs that wait for cancelled ones
-- Index: pgjobs_job_running
WITH taken AS MATERIALIZED (
    SELECT unheld.id
    FROM pgjobs_job_live AS unheld
    WHERE
        unheld.status = 'running' AND unheld.worker_id = %(worker_id)s::bigint
        AND NOT unheld.id = ANY (%(held_ids)s::bigint[])
    ORDER BY unheld.id
    LIMIT %(max_jobs)s::integer
    FOR UPDATE SKIP LOCKED
),
returned AS (
    UPDATE pgjobs_job AS job
    SET
        status = CASE WHEN job.cancel_requested_at IS NULL THEN 'ready' ELSE 'cancelled' END,
        finished_at = CASE WHEN job.cancel_requested_at IS NOT NULL THEN statement_timestamp() END,
        claim = mod(GREATEST(job.claim, 0), 9000000000000000000) + 1,
        worker_id = NULL,
        attempts = GREATEST(job.attempts, 1) - 1,
        worker_ids = CASE
            WHEN array_ndims(job.worker_ids) = 1 AND array_lower(job.worker_ids, 1) = 1
                THEN (array_remove(job.worker_ids, NULL))[:cardinality(job.worker_ids) - 1]
            ELSE '{}'
        END,
        started_at = CASE
            WHEN job.attempts > 1
                THEN GREATEST(LEAST(job.started_at, statement_timestamp()), 'epoch')
        END,
        note = CASE WHEN job.cancel_requested_at IS NULL THEN %(note)s::text ELSE '' END
    WHERE
        %(acts)s::boolean
        AND job.status = 'running' AND job.id = ANY (ARRAY(SELECT taken.id FROM taken))
    RETURNING job.id, job.status, job.batch_id, {job.cancel_noted} AS noted
),
noted AS (
    {returned.changes_of_batches}
)
SELECT returned.id FROM returned
UNION ALL
-- No row more, but the function is called; what it leaves is found by the sweep.
SELECT NULL
FROM pgjobs_resolve_v1(
    ARRAY(SELECT returned.id FROM returned WHERE returned.status = 'cancelled'),
    %(max_dependencies)s::integer
) AS resolved
WHERE resolved.queue_name IS NULL AND resolved.predecessor_id IS NULL
UNION ALL
SELECT taken.id FROM taken WHERE NOT %(acts)s::boolean
