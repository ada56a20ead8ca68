-- Insert jobs of one task into a batch, and note how many; in the order given. Nothing is
-- inserted if the batch takes nothing any more.
-- Parameters: as enqueue_keyed_jobs, but concurrency_keys and rate_limit_keys may be NULL where no
--     job has one; batch_id bigint; job_id, claim bigint (of a running job of the
--     batch, or NULL)
-- Returns: id, one row per job, in the order given; no row if nothing was inserted
-- Locks: the job that asks, then the batch FOR KEY SHARE: waits for who seals it, and only for that
-- Index: pgjobs_batch_pkey, pgjobs_job_live_pkey
WITH {job_id.asking},
target AS MATERIALIZED (
    {batch_id.taking}
),
inserted AS (
    INSERT INTO pgjobs_job AS job (
        {job.task_columns}, {job.start_columns}, args, kwargs, concurrency_key, rate_limit_keys,
        batch_id
    )
    SELECT
        {job.task_values}, {job.start_values}, line.args::json, line.kwargs::json,
        line.concurrency_key, line.rate_limit_keys, target.id
    FROM target
    CROSS JOIN unnest(
        string_to_array(%(args)s::text, E'\n'), string_to_array(%(kwargs)s::text, E'\n'),
        %(concurrency_keys)s::text[], %(rate_limit_keys)s::text[]
    ) AS line (args, kwargs, concurrency_key, rate_limit_keys)
    RETURNING job.id
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, jobs)
    SELECT target.id, (SELECT count(*) FROM inserted) FROM target
)
SELECT inserted.id FROM inserted
