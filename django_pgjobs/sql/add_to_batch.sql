-- Insert jobs of one task into a batch, and note how many; in the order given. Nothing is
-- inserted if the batch takes nothing any more.
-- Parameters: as enqueue_keyed_jobs, but concurrency_key and rate_limit_keys may be NULL where no
--     job has one; batch_id bigint; job_id, claim bigint (of a running job of the
--     batch, or NULL)
-- Returns: id, one row per job, in the order given; no row if nothing was inserted
-- Locks: the job that asks, then the batch FOR KEY SHARE: waits for who seals it, and only for that
-- Index: pgjobs_batch_pkey, pgjobs_job_live_pkey
WITH asking AS MATERIALIZED (
    {job_id.asking}
),
target AS MATERIALIZED (
    SELECT batch.id
    FROM pgjobs_batch AS batch
    WHERE batch.id = %(batch_id)s::bigint AND {batch.takes_jobs}
    FOR KEY SHARE
),
inserted AS (
    INSERT INTO pgjobs_job AS job (
        task_path, queue_name, backend, priority, args, kwargs, metadata, run_after,
        max_attempts, timeout, correlation_id, tags, subject, concurrency_key, concurrency_limit,
        skips_waiting, rate_limit_keys, rate_cost, max_losses, expires_at, on_failure, is_declared,
        is_async, batch_id
    )
    SELECT
        %(task_path)s::text, %(queue_name)s::text, %(backend)s::text, %(priority)s::smallint,
        line.args::json, line.kwargs::json, %(metadata)s::json,
        COALESCE(
            %(run_after)s::timestamptz,
            statement_timestamp() + make_interval(secs => %(delay)s::double precision)
        ),
        %(max_attempts)s::integer, %(timeout)s::double precision, %(correlation_id)s::text,
        %(tags)s::text[], %(subject)s::text, line.concurrency_key, %(concurrency_limit)s::integer,
        %(skips_waiting)s::boolean, line.rate_limit_keys, %(rate_cost)s::integer,
        %(max_losses)s::integer, {asked.expiry_as_asked}, %(on_failure)s::jsonb, TRUE,
        %(is_async)s::boolean, target.id
    FROM target
    CROSS JOIN unnest(
        string_to_array(%(args)s::text, E'\n'), string_to_array(%(kwargs)s::text, E'\n'),
        %(concurrency_key)s::text[], %(rate_limit_keys)s::text[]
    ) AS line (args, kwargs, concurrency_key, rate_limit_keys)
    RETURNING job.id
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, jobs)
    SELECT target.id, (SELECT count(*) FROM inserted) FROM target
)
SELECT inserted.id FROM inserted
