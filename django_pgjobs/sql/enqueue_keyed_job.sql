-- Insert one job that has keys, a subject, a limit of losses, an expiry or a follow-up on the caller's connection.
-- Parameters: task_path, queue_name, backend text; priority integer; args, kwargs, metadata
--     text (JSON); run_after timestamptz or NULL; delay double precision (seconds) or NULL;
--     max_attempts integer; timeout double precision (seconds) or NULL; correlation_id text;
--     tags text[]; is_async boolean; concurrency_key text or NULL; concurrency_limit integer or NULL;
--     skips_waiting boolean; rate_limit_keys text (one per line) or NULL; rate_cost integer;
--     subject text or NULL; max_losses integer or NULL; expires timestamptz or NULL;
--     expires_in double precision (seconds) or NULL; on_failure jsonb or NULL
-- Returns: id, enqueued_at, run_after
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_job (
    task_path, queue_name, backend, priority, args, kwargs, metadata, run_after,
    max_attempts, timeout, correlation_id, tags, concurrency_key,
    concurrency_limit, skips_waiting, rate_limit_keys, rate_cost, subject,
    max_losses, expires_at, on_failure, is_declared, is_async
)
VALUES (
    %(task_path)s::text, %(queue_name)s::text, %(backend)s::text, %(priority)s::smallint,
    %(args)s::json, %(kwargs)s::json, %(metadata)s::json,
    COALESCE(
        %(run_after)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay)s::double precision)
    ),
    %(max_attempts)s::integer, %(timeout)s::double precision, %(correlation_id)s::text,
    %(tags)s::text[], %(concurrency_key)s::text, %(concurrency_limit)s::integer,
    %(skips_waiting)s::boolean, %(rate_limit_keys)s::text, %(rate_cost)s::integer,
    %(subject)s::text, %(max_losses)s::integer, {job.expiry_as_asked}, %(on_failure)s::jsonb, TRUE,
    %(is_async)s::boolean
)
RETURNING id, enqueued_at, run_after
