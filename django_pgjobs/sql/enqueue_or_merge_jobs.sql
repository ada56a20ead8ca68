-- Insert jobs of one task, or change the waiting ones that have the unique key.
--
-- The due time moves to the new run_after, but not beyond *max_wait* after the enqueue; it expires
-- at the later of both times. One that was claimed before, whose key is not free yet, or cannot be
-- merged here (positional arguments, more than *max_bytes*), is neither met nor listed.
-- For enqueue_from a QuerySet takes the place of the lines (queries/enqueue.py).
-- Parameters: task_path, queue_name, backend text; priority integer; metadata text (JSON);
--     run_after timestamptz or NULL; delay double precision (seconds) or NULL; max_attempts
--     integer; timeout double precision (seconds) or NULL; correlation_id text; tags text[]; is_async boolean;
--     concurrency_limit integer or NULL; skips_waiting boolean; rate_cost integer; subject
--     text or NULL; max_losses integer or NULL; expires timestamptz or NULL;
--     expires_in double precision (seconds) or NULL; on_failure jsonb or NULL; batch_id bigint or
--     NULL; unique_until_claimed boolean; args, kwargs text with one JSON text per line;
--     concurrency_keys, rate_limit_keys, unique_keys text[] of as many entries; max_listed
--     integer; detailed boolean; merge text ('union', 'append' or 'last'); replaces
--     boolean (the priority too); max_wait double precision (seconds) or NULL; max_bytes integer
-- Returns: one row: the number of lines; of jobs they came to; of those inserted or met; of
--     those inserted; up to *max_listed* of them, as JSON text: a list of [id, unique
--     key, the columns of get_job and the backend, or null]; up to *max_listed* ids of those
--     met, as a JSON text; the number of queues notified
-- Locks: the rows met, in the order of keys; waits for transactions that hold one
-- Index: pgjobs_job_unique
WITH line AS (
    SELECT number, args, kwargs, concurrency_key, rate_limit_keys, unique_key
    FROM unnest(
        string_to_array(%(args)s::text, E'\n'), string_to_array(%(kwargs)s::text, E'\n'),
        %(concurrency_keys)s::text[], %(rate_limit_keys)s::text[], %(unique_keys)s::text[]
    ) WITH ORDINALITY
        AS line (args, kwargs, concurrency_key, rate_limit_keys, unique_key, number)
),
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
-- In the order of keys, so that two batches never wait for each other in a circle.
saved AS (
    INSERT INTO pgjobs_job_live AS job ({job.unique_columns}, merged_count)
    SELECT {fresh.unique_values}, fresh.merged_count
    FROM fresh
    ORDER BY fresh.unique_key COLLATE "C"
    ON CONFLICT (unique_key, task_path)
    WHERE unique_key IS NOT NULL AND (claim = 0 OR NOT unique_until_claimed)
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
-- Not by a join: the planner may expect one row where there are a million.
met AS (
    SELECT saved.id FROM saved EXCEPT SELECT fresh.id FROM fresh
)
SELECT
    (SELECT count(*) FROM line) AS lines, (SELECT count(*) FROM fresh) AS jobs,
    (SELECT count(*) FROM saved) AS known,
    (SELECT count(*) FROM saved) - (SELECT count(*) FROM met) AS inserted,
    (
        SELECT json_agg(
            json_build_array(
                known.id, known.unique_key,
                CASE WHEN %(detailed)s::boolean THEN json_build_array(
                    {(known.job).as_job_row}, (known.job).backend
                ) END
            )
            ORDER BY known.id
        )::text
        FROM (
            SELECT saved.id, saved.unique_key, saved.job FROM saved
            LIMIT %(max_listed)s::integer
        ) AS known
    ) AS listed,
    (
        SELECT json_agg(listed.id)::text
        FROM (SELECT met.id FROM met LIMIT %(max_listed)s::integer) AS listed
    ) AS met,
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
