-- Insert jobs of one task, or change the waiting ones that have the unique key.
--
-- The due time moves to the new run_after, but not beyond *max_wait* after the enqueue; it expires
-- at the later of both times. One that was claimed before, whose key is not free yet, or cannot be
-- merged here (positional arguments, more than *max_bytes*), is neither met nor listed.
-- For enqueue_from a QuerySet takes the place of the lines (queries/enqueue.py).
-- Parameters: as enqueue_unique_jobs, without *prolongs*; merge text ('union', 'append' or 'last');
--     replaces boolean (the priority too); max_wait double precision (seconds) or NULL; max_bytes
--     integer
-- Returns: as enqueue_unique_jobs, but first counts those inserted or met, then those inserted;
--     the number of queues notified
-- Locks: the rows met, in the order of keys; waits for transactions that hold one
-- Index: pgjobs_job_unique
WITH {line.with_keys},
-- The lines of one key become one job, at the place of the first; ids follow that order.
fresh AS MATERIALIZED (
    SELECT
        nextval('pgjobs_job_id_seq') AS id, folded.args, folded.kwargs, folded.concurrency_key,
        folded.rate_limit_keys, folded.unique_key, folded.merged_count
    FROM (
        SELECT
            unique_key, min(number) AS first, count(*) - 1 AS merged_count,
            pgjobs_merged_v1(args::json, 'last' ORDER BY number) AS args,
            pgjobs_merged_v1(kwargs::json, %(merge)s::text ORDER BY number) AS kwargs,
            (array_agg(concurrency_key ORDER BY number))[count(*)] AS concurrency_key,
            (array_agg(rate_limit_keys ORDER BY number))[count(*)] AS rate_limit_keys
        FROM line
        GROUP BY unique_key, CASE WHEN unique_key IS NULL THEN number END
        ORDER BY first
    ) AS folded
),
saved AS (
    {fresh.saved_by_key}
    DO UPDATE SET
        args = excluded.args,
        kwargs = pgjobs_merge_v1(job.kwargs, excluded.kwargs, %(merge)s::text),
        priority = CASE
            WHEN %(replaces)s::boolean THEN excluded.priority
            ELSE GREATEST(job.priority, excluded.priority)
        END,
        (run_after, due_at, ready_at) = (
            SELECT moved.run_after,
                CASE WHEN moved.run_after > statement_timestamp() THEN moved.run_after END,
                CASE
                    WHEN moved.run_after > statement_timestamp() THEN moved.run_after
                    ELSE {job.waiting_since}
                END
            FROM (
                SELECT CASE
                    WHEN excluded.run_after IS NOT NULL THEN LEAST(
                        excluded.run_after,
                        GREATEST(LEAST(job.enqueued_at, statement_timestamp()), 'epoch')
                        + make_interval(secs => %(max_wait)s::double precision)
                    )
                END AS run_after
            ) AS moved
        ),
        expires_at = {job.expiry_of_both},
        concurrency_key = excluded.concurrency_key,
        concurrency_limit = excluded.concurrency_limit,
        skips_waiting = excluded.skips_waiting,
        rate_limit_keys = excluded.rate_limit_keys,
        rate_cost = excluded.rate_cost,
        subject = COALESCE(job.subject, excluded.subject),
        merged_count = LEAST(
            GREATEST(job.merged_count, 0) + excluded.merged_count::bigint + 1, 2147483647
        )
    WHERE
        job.status = 'ready' AND job.claim = 0
        AND (
            %(merge)s::text = 'last'
            OR job.args::text = '[]'
            AND (
                octet_length(job.kwargs::text) + octet_length(excluded.kwargs::text)
                <= %(max_bytes)s::integer
                OR octet_length(
                    pgjobs_merge_v1(job.kwargs, excluded.kwargs, %(merge)s::text)::text
                ) <= %(max_bytes)s::integer
            )
        )
    RETURNING
        job.id, job.unique_key, job.queue_name, job.due_at,
        CASE WHEN %(detailed)s::boolean THEN job END AS job
),
{saved.told},
    (
        -- No trigger tells idle workers that a job is due earlier than before.
        SELECT count(pg_notify('pgjobs', woken.queue_name))
        FROM (
            SELECT DISTINCT saved.queue_name
            FROM saved
            WHERE
                saved.due_at IS NULL
                AND EXISTS (SELECT FROM pgjobs_worker AS worker WHERE worker.listening)
        ) AS woken
    ) AS notified
