-- Insert one job on the caller's connection, so that it commits with the caller's data.
-- Parameters: task_path, queue_name, backend text; priority integer; args, kwargs, metadata
--     text (JSON); run_after timestamptz or NULL; delay double precision (seconds) or NULL;
--     max_attempts integer; timeout double precision (seconds) or NULL; correlation_id text;
--     tags text[]; is_async boolean
-- Returns: id, enqueued_at, run_after
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_job (
    task_path, queue_name, backend, priority, args, kwargs, metadata, run_after,
    max_attempts, timeout, correlation_id, tags, is_declared, is_async
)
VALUES (
    %(task_path)s::text, %(queue_name)s::text, %(backend)s::text, %(priority)s::smallint,
    %(args)s::json, %(kwargs)s::json, %(metadata)s::json,
    COALESCE(
        %(run_after)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay)s::double precision)
    ),
    %(max_attempts)s::integer, %(timeout)s::double precision, %(correlation_id)s::text,
    %(tags)s::text[], TRUE, %(is_async)s::boolean
)
RETURNING id, enqueued_at, run_after
