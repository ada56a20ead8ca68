-- Insert many jobs of one task that have keys, a subject, a limit of losses, an expiry or a
-- follow-up, in the order given.
-- Parameters: as enqueue_jobs; concurrency_keys, rate_limit_keys text[] of as many entries (limits
--     one per line); concurrency_limit integer or NULL; skips_waiting boolean; rate_cost integer;
--     subject text or NULL; max_losses integer or NULL; expires timestamptz or NULL;
--     expires_in double precision (seconds) or NULL; on_failure jsonb or NULL
-- Returns: id, one row per job, in the order given
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_job (
    {job.task_columns}, {job.start_columns}, args, kwargs, concurrency_key, rate_limit_keys
)
SELECT
    {job.task_values}, {job.start_values}, line.args::json, line.kwargs::json,
    line.concurrency_key, line.rate_limit_keys
FROM unnest(
    string_to_array(%(args)s::text, E'\n'), string_to_array(%(kwargs)s::text, E'\n'),
    %(concurrency_keys)s::text[], %(rate_limit_keys)s::text[]
) AS line (args, kwargs, concurrency_key, rate_limit_keys)
RETURNING id
