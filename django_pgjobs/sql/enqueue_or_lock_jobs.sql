-- Insert jobs of one task, or lock the waiting ones that have the unique key.
--
-- What is met cannot be claimed before the caller commits, so it will see what the caller
-- wrote; it expires at the later of both times. One that was claimed before, whose key is not free
-- yet, is neither met nor listed.
-- For enqueue_from a QuerySet takes the place of the lines (queries/enqueue.py).
-- Parameters: task_path, queue_name, backend text; priority integer; metadata text (JSON);
--     run_after timestamptz or NULL; delay double precision (seconds) or NULL; max_attempts
--     integer; timeout double precision (seconds) or NULL; correlation_id text; tags text[]; is_async boolean;
--     concurrency_limit integer or NULL; skips_waiting boolean; rate_cost integer; subject
--     text or NULL; max_losses integer or NULL; expires timestamptz or NULL;
--     expires_in double precision (seconds) or NULL; on_failure jsonb or NULL; batch_id bigint or
--     NULL; unique_until_claimed boolean; args, kwargs text with one JSON text per line;
--     concurrency_keys, rate_limit_keys, unique_keys text[] of as many entries; max_listed
--     integer; detailed boolean
-- Returns: one row: the number of lines; of jobs they came to; of those inserted or met; of
--     those inserted; up to *max_listed* of them, as JSON text: a list of [id, unique
--     key, the columns of get_job and the backend, or null]; up to *max_listed* ids of those
--     met, as a JSON text
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
-- The first line of each key becomes a job; ids follow the order of the lines.
fresh AS MATERIALIZED (
    SELECT
        nextval('pgjobs_job_id_seq') AS id, first.args, first.kwargs, first.concurrency_key,
        first.rate_limit_keys, first.unique_key
    FROM (
        SELECT args, kwargs, concurrency_key, rate_limit_keys, unique_key
        FROM (
            SELECT DISTINCT ON (unique_key, CASE WHEN unique_key IS NULL THEN number END)
                number, args, kwargs, concurrency_key, rate_limit_keys, unique_key
            FROM line
            ORDER BY unique_key, CASE WHEN unique_key IS NULL THEN number END, number
        ) AS line
        ORDER BY number
    ) AS first
),
-- In the order of keys, so that two batches never wait for each other in a circle.
saved AS (
    INSERT INTO pgjobs_job_live AS job ({job.unique_columns})
    SELECT {fresh.unique_values}
    FROM fresh
    ORDER BY fresh.unique_key COLLATE "C"
    ON CONFLICT (unique_key, task_path)
    WHERE unique_key IS NOT NULL AND (claim = 0 OR NOT unique_until_claimed)
    DO UPDATE SET expires_at = {job.expiry_of_both}
    WHERE job.status = 'ready' AND job.claim = 0
    RETURNING job.id, job.unique_key, CASE WHEN %(detailed)s::boolean THEN job END AS job
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
    ) AS met
