-- Insert many jobs of one task that have keys, a subject, a limit of losses, an expiry or a
-- follow-up, in the order given.
-- Parameters: as enqueue_keyed_job, but args and kwargs hold one JSON text per line, and
--     concurrency_key and rate_limit_keys are text[] of as many entries
-- Returns: id, one row per job, in the order given
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_job (
    task_path, queue_name, backend, priority, args, kwargs, metadata, run_after,
    max_attempts, timeout, correlation_id, tags, concurrency_key,
    concurrency_limit, skips_waiting, rate_limit_keys, rate_cost, subject,
    max_losses, expires_at, on_failure, is_declared, is_async
)
SELECT
    %(task_path)s::text, %(queue_name)s::text, %(backend)s::text, %(priority)s::smallint,
    line.args::json, line.kwargs::json, %(metadata)s::json,
    COALESCE(
        %(run_after)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay)s::double precision)
    ),
    %(max_attempts)s::integer, %(timeout)s::double precision, %(correlation_id)s::text,
    %(tags)s::text[], line.concurrency_key, %(concurrency_limit)s::integer,
    %(skips_waiting)s::boolean, line.rate_limit_keys, %(rate_cost)s::integer,
    %(subject)s::text, %(max_losses)s::integer, {job.expiry_as_asked}, %(on_failure)s::jsonb, TRUE,
    %(is_async)s::boolean
FROM unnest(
    string_to_array(%(args)s::text, E'\n'), string_to_array(%(kwargs)s::text, E'\n'),
    %(concurrency_key)s::text[], %(rate_limit_keys)s::text[]
) AS line (args, kwargs, concurrency_key, rate_limit_keys)
RETURNING id
