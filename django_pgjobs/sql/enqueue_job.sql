-- Insert one job on the caller's connection, so that it commits with the caller's data.
-- Parameters: task_path, queue_name, backend text; priority integer; args, kwargs, metadata
--     text (JSON); run_after timestamptz or NULL; delay double precision (seconds) or NULL;
--     max_attempts integer; timeout double precision (seconds) or NULL; correlation_id text;
--     tags text[]; is_async boolean
-- Returns: id; enqueued_at, run_after timestamp, in UTC
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_job ({job.task_columns}, args, kwargs)
VALUES ({job.task_values}, %(args)s::json, %(kwargs)s::json)
RETURNING id, timezone('UTC', enqueued_at), timezone('UTC', run_after)
