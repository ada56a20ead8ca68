-- Insert many jobs of one task in one statement, in the order given.
-- Parameters: as enqueue_job, but args and kwargs hold one JSON text per line, as many lines each
-- Returns: id, one row per job, in the order given
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_job (
    task_path, queue_name, backend, priority, args, kwargs, metadata, run_after,
    max_attempts, timeout, correlation_id, tags, is_declared, is_async
)
SELECT
    %(task_path)s::text, %(queue_name)s::text, %(backend)s::text, %(priority)s::smallint,
    line.args::json, line.kwargs::json, %(metadata)s::json,
    COALESCE(
        %(run_after)s::timestamptz,
        statement_timestamp() + make_interval(secs => %(delay)s::double precision)
    ),
    %(max_attempts)s::integer, %(timeout)s::double precision, %(correlation_id)s::text,
    %(tags)s::text[], TRUE, %(is_async)s::boolean
FROM unnest(
    string_to_array(%(args)s::text, E'\n'), string_to_array(%(kwargs)s::text, E'\n')
) AS line (args, kwargs)
RETURNING id
