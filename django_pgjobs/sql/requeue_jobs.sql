-- Give finished jobs new attempts; their errors stay as history.
--
-- A job moves as an INSERT and a DELETE, because an UPDATE has no ON CONFLICT: one whose unique
-- key a live job has by now stays where it is. If that twin was not committed when the
-- statement began, it is not seen, and twin_id is NULL: ask again. A job of a tree that is being
-- deleted is as good as gone. One of a batch that was cancelled stays: it would be cancelled again.
-- Parameters: ids bigint[]; statuses text[] (those of other jobs stay: somebody has run them again);
--     run_after timestamptz or NULL; delay double precision (seconds) or
--     NULL; both NULL: at once; spread double precision (seconds): each job gets a random part of
--     it on top of *delay*; note text; despite_cancels boolean: of a retry, which takes them back
-- Returns: id, queue_name, NULL, batch_id; or id, NULL, twin_id, NULL of one that stays
-- Locks: the roots of their trees FOR KEY SHARE: waits for who seals or deletes one; then the rows,
--     in order of id, SKIP LOCKED; waits for transactions that just inserted one of the unique
--     keys, in the order of keys
-- Index: pgjobs_job_finished_pkey, pgjobs_job_unique, pgjobs_batch_pkey
WITH held AS MATERIALIZED (
    SELECT root.id
    FROM pgjobs_batch AS root
    WHERE
        root.id = ANY (ARRAY(
            SELECT batch.root_id
            FROM (
                SELECT job.batch_id
                FROM pgjobs_job_finished AS job
                WHERE
                    job.id = ANY (%(ids)s::bigint[])
                    -- Not IN, here and below: by that the planner may take the index of ends, and
                    -- read all of it.
                    AND job.status <> 'ready' AND job.status <> 'running'
                OFFSET 0
            ) AS asked
            CROSS JOIN LATERAL (
                SELECT one.root_id FROM pgjobs_batch AS one WHERE one.id = asked.batch_id OFFSET 0
            ) AS batch
        ))
        AND root.deleting_at IS NULL
    ORDER BY root.id
    FOR KEY SHARE
),
taken AS MATERIALIZED (
    SELECT
        job.id, job.claim, job.enqueued_at, job.timeout, job.max_attempts, job.priority,
        job.queue_name, job.task_path, job.backend, job.args, job.kwargs, job.correlation_id,
        job.tags, job.metadata, job.errors, job.waits_for, job.concurrency_key,
        job.concurrency_limit, job.skips_waiting, job.rate_limit_keys, job.rate_cost,
        job.unique_key, job.unique_until_claimed, job.merged_count, job.subject,
        job.max_losses, job.expires_at, on_failure, is_declared, is_async, job.batch_id,
        job.source_id, job.schedule, job.scheduled_for, job.status,
        {job.run_after_as_asked} AS run_after
    FROM pgjobs_job_finished AS job
    WHERE
        job.id = ANY (%(ids)s::bigint[])
        AND job.status <> 'ready' AND job.status <> 'running'
        AND array_position(%(statuses)s::text[], job.status) IS NOT NULL
        -- As an EXISTS the planner might read all batches.
        AND (
            SELECT batch.id
            FROM pgjobs_batch AS batch
            WHERE
                batch.id = job.batch_id
                AND (
                    batch.root_id NOT IN (SELECT held.id FROM held)
                    OR batch.cancel_requested_at IS NOT NULL AND NOT %(despite_cancels)s::boolean
                )
            LIMIT 1
        ) IS NULL
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
),
moved AS (
    INSERT INTO pgjobs_job_live AS job (
        id, claim, enqueued_at, timeout, max_attempts, priority, queue_name, task_path, backend,
        args, kwargs, correlation_id, tags, metadata, errors, waits_for, concurrency_key,
        concurrency_limit, skips_waiting, rate_limit_keys, rate_cost, unique_key,
        unique_until_claimed, merged_count, subject, max_losses, is_declared, is_async, run_after,
        due_at, ready_at, expires_at, on_failure, batch_id, source_id, schedule, scheduled_for,
        note
    )
    SELECT
        id, mod(GREATEST(claim, 0), 9000000000000000000) + 1, enqueued_at, timeout, max_attempts, priority, queue_name, task_path,
        backend, args, kwargs, correlation_id, tags, metadata, errors, waits_for,
        concurrency_key, concurrency_limit, skips_waiting, rate_limit_keys, rate_cost,
        unique_key, unique_until_claimed, merged_count, subject, max_losses, is_declared, is_async,
        run_after, CASE WHEN run_after > statement_timestamp() THEN run_after END,
        GREATEST(run_after, statement_timestamp()),
        -- One that has expired, or would before it may run, is wanted all the same.
        CASE
            WHEN expires_at > GREATEST(run_after, statement_timestamp())
                THEN LEAST(expires_at, '9999-12-30')
        END,
        on_failure, batch_id, source_id, schedule, scheduled_for, %(note)s::text
    FROM taken
    -- Whoever waits for a key does so in their order, as enqueues do: none waits for another.
    ORDER BY taken.task_path, taken.unique_key COLLATE "C", taken.id
    {job.on_occupied_key}
    DO NOTHING
    RETURNING job.id, job.queue_name, job.batch_id
),
gone AS (
    DELETE FROM pgjobs_job_finished AS job
    WHERE
        job.id = ANY (ARRAY(SELECT moved.id FROM moved))
        AND job.status <> 'ready' AND job.status <> 'running'
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, successful, failed, cancelled, reopens)
    SELECT
        taken.batch_id,
        -count(*) FILTER (WHERE taken.status = 'successful'),
        -count(*) FILTER (WHERE taken.status = 'failed'),
        -count(*) FILTER (WHERE taken.status = 'cancelled'), TRUE
    FROM taken
    JOIN moved ON moved.id = taken.id
    WHERE taken.batch_id IS NOT NULL
    GROUP BY taken.batch_id
    -- Workers count what whoever requeues has to leave.
    RETURNING pg_notify('pgjobs_control', 'batches')
)
SELECT moved.id, moved.queue_name, NULL::bigint AS twin_id, moved.batch_id FROM moved
UNION ALL
SELECT
    taken.id, NULL,
    (
        SELECT twin.id
        FROM pgjobs_job_live AS twin
        WHERE
            twin.unique_key = taken.unique_key AND twin.task_path = taken.task_path
            AND {twin.occupies_key}
    ),
    NULL::bigint
FROM taken
WHERE taken.id NOT IN (SELECT moved.id FROM moved)
