-- Return the jobs of workers that are gone: no row, said goodbye, or a lease that ran out.
--
-- An expired lease is never renewed (renew_lease.sql), so whoever holds it has lost; the rising
-- claim makes its late writes miss. The first loss returns the job at once, later ones after a
-- growing, random delay. A loss uses up no attempt: the claim's reader allows for lost_count
-- attempts more.
--
-- A job that was lost max_losses times fails. Of several that were lost with the same worker,
-- nobody knows which one killed it: with max_losses above 1 they fail at three times as many, and
-- until then their delays are such that they run apart (up to 5 s after the first loss, at least
-- 30 s from the max_losses-th), and the one that kills is lost alone. Those of one page are
-- counted: where the last job of a worker is on a page of its own, or another worker rescues the
-- rest, it counts as lost alone, which is good enough.
-- Parameters: acts boolean (else nothing is changed); max_jobs integer; passed_over bigint[] (jobs that are left alone);
--     default_max_losses integer; max_errors integer; note, note_together text (lost alone, or with
--     other jobs); max_dependencies integer (resolved at most)
-- Returns: id, task_path, queue_name, status after the rescue, attempts, worker_id that was lost (or
--     NULL), correlation_id
-- Locks: the rescued rows, in order of id within a worker, SKIP LOCKED; then the jobs that wait
--     for those that ended
-- Index: pgjobs_job_running
WITH RECURSIVE holder AS (
    (
        SELECT job.worker_id
        FROM pgjobs_job_live AS job
        WHERE job.status = 'running'
        ORDER BY job.worker_id
        LIMIT 1
    )
    UNION ALL
    SELECT following.worker_id
    FROM holder
    CROSS JOIN LATERAL (
        SELECT job.worker_id
        FROM pgjobs_job_live AS job
        WHERE job.status = 'running' AND job.worker_id > holder.worker_id
        ORDER BY job.worker_id
        LIMIT 1
    ) AS following
),
gone AS (
    SELECT holder.worker_id
    FROM holder
    WHERE NOT EXISTS (
        SELECT FROM pgjobs_worker AS worker
        WHERE worker.id = holder.worker_id AND {worker.is_live}
    )
),
taken AS MATERIALIZED (
    SELECT locked.id, gone.worker_id, locked.lost_count, locked.max_losses
    FROM gone
    CROSS JOIN LATERAL (
        SELECT job.id, job.lost_count, job.max_losses
        FROM pgjobs_job_live AS job
        WHERE
            job.status = 'running'
            AND job.worker_id = gone.worker_id
            AND job.id <> ALL (%(passed_over)s::bigint[])
        ORDER BY job.id
        LIMIT %(max_jobs)s::integer
        FOR UPDATE SKIP LOCKED
    ) AS locked
    UNION ALL
    -- What runs without a worker is nobody's.
    SELECT nobodys.id, NULL, nobodys.lost_count, nobodys.max_losses
    FROM (
        SELECT job.id, job.lost_count, job.max_losses
        FROM pgjobs_job_live AS job
        WHERE job.status = 'running' AND job.worker_id IS NULL
            AND job.id <> ALL (%(passed_over)s::bigint[])
        ORDER BY job.worker_id, job.id
        LIMIT %(max_jobs)s::integer
        FOR UPDATE SKIP LOCKED
    ) AS nobodys
    LIMIT %(max_jobs)s::integer
),
counted AS (
    SELECT
        taken.id,
        taken.worker_id,
        LEAST(GREATEST(taken.lost_count, 0), 2147483646) + 1 AS losses,
        COALESCE(taken.max_losses, %(default_max_losses)s::integer) AS most,
        taken.worker_id IS NOT NULL
        AND count(*) OVER (PARTITION BY taken.worker_id) > 1 AS together
    FROM taken
),
judged AS (
    SELECT
        counted.id,
        counted.worker_id,
        counted.losses,
        counted.together,
        counted.losses >= counted.most AS is_due,
        counted.losses >= counted.most
        AND (
            NOT counted.together
            OR counted.most <= 1
            OR counted.losses::bigint >= counted.most::bigint * 3
        ) AS fails
    FROM counted
),
delayed AS MATERIALIZED (
    SELECT
        judged.id,
        judged.worker_id,
        judged.losses,
        judged.together,
        judged.fails,
        CASE
            WHEN judged.losses > 1
                THEN statement_timestamp() + make_interval(
                    secs => GREATEST(
                        LEAST(power(2, LEAST(judged.losses - 1, 10)), 300),
                        CASE WHEN judged.is_due AND NOT judged.fails THEN 60 ELSE 0 END
                    ) * (0.5::double precision + random() / 2::double precision)
                )
            WHEN judged.together
                THEN statement_timestamp()
                    + make_interval(secs => 5::double precision * random())
        END AS due_at
    FROM judged
),
rescued AS (
    UPDATE pgjobs_job AS job
    SET
        status = CASE
            WHEN job.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN delayed.fails THEN 'failed'
            ELSE 'ready'
        END,
        finished_at = CASE
            WHEN job.cancel_requested_at IS NOT NULL OR delayed.fails THEN statement_timestamp()
        END,
        due_at = delayed.due_at,
        ready_at = COALESCE(delayed.due_at, statement_timestamp()),
        claim = mod(GREATEST(job.claim, 0), 9000000000000000000) + 1,
        lost_count = delayed.losses,
        worker_id = NULL,
        progress = NULL,
        note = CASE
            WHEN delayed.together THEN %(note_together)s::text ELSE %(note)s::text
        END,
        errors = CASE
            WHEN jsonb_typeof(job.errors) <> 'array' THEN '[]'
            WHEN jsonb_array_length(job.errors) < %(max_errors)s::integer THEN job.errors
            ELSE job.errors - 1
        END || jsonb_build_object(
            'exception_class', 'django_pgjobs.exceptions.WorkerLost',
            'message', CASE
                WHEN delayed.together THEN %(note_together)s::text ELSE %(note)s::text
            END,
            'traceback', '',
            'attempt', job.attempts,
            'worker', job.worker_ids[cardinality(job.worker_ids)],
            'started_at', job.last_attempted_at,
            'failed_at', statement_timestamp()
        )
    FROM delayed
    WHERE
        %(acts)s::boolean
        AND job.id = ANY (ARRAY(SELECT taken.id FROM taken))
        AND {job.runs}
        AND job.id = delayed.id
    RETURNING
        job.id, job.task_path, job.queue_name, job.status, job.attempts, delayed.worker_id,
        job.correlation_id, job.on_failure, job.errors, job.batch_id
),
told AS (
    {rescued.follow_ups}
),
noted AS (
    {rescued.changes_of_batches}
)
SELECT
    rescued.id, rescued.task_path, rescued.queue_name, rescued.status, rescued.attempts,
    rescued.worker_id, rescued.correlation_id
FROM rescued
UNION ALL
-- No row more, but the function is called; what it leaves is found by the sweep.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM pgjobs_resolve_v1(
    ARRAY(SELECT rescued.id FROM rescued WHERE rescued.status <> 'ready'),
    %(max_dependencies)s::integer
) AS resolved
WHERE resolved.queue_name IS NULL AND resolved.predecessor_id IS NULL
UNION ALL
SELECT taken.id, NULL, NULL, NULL, NULL, NULL, NULL FROM taken WHERE NOT %(acts)s::boolean
