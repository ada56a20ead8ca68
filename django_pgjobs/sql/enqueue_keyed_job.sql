-- Insert one job that has keys, a subject, a limit of losses, an expiry or a follow-up on the caller's connection.
-- Parameters: as enqueue_job; concurrency_key text or NULL; concurrency_limit integer or NULL;
--     skips_waiting boolean; rate_limit_keys text (one per line) or NULL; rate_cost integer;
--     subject text or NULL; max_losses integer or NULL; expires timestamptz or NULL;
--     expires_in double precision (seconds) or NULL; on_failure jsonb or NULL
-- Returns: id; enqueued_at, run_after timestamp, in UTC
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_job (
    {job.task_columns}, {job.start_columns}, args, kwargs, concurrency_key, rate_limit_keys
)
VALUES (
    {job.task_values}, {job.start_values}, %(args)s::json, %(kwargs)s::json,
    %(concurrency_key)s::text, %(rate_limit_keys)s::text
)
RETURNING id, timezone('UTC', enqueued_at), timezone('UTC', run_after)
