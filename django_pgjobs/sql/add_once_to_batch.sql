-- Insert jobs of one task into a batch, except where it has, or had, one with that dedupe key; of
-- several lines with one key the first. Nothing is inserted if the batch takes nothing any more.
-- Parameters: as add_to_batch; dedupe_keys text[], of as many entries as there are lines
-- Returns: dedupe_key, id, is_new of each key; no row of a key that another transaction has just
--     taken, or that is new to a batch that takes nothing any more
-- Locks: the job that asks, then the batch FOR KEY SHARE: waits for who seals it; then for
--     transactions that have just taken one of the keys, in the order of keys
-- Index: pgjobs_batch_pkey, pgjobs_job_live_pkey, pgjobs_batch_key_pkey
WITH {job_id.asking},
target AS MATERIALIZED (
    {batch_id.taking}
),
known AS MATERIALIZED (
    SELECT former.dedupe_key, former.job_id
    FROM pgjobs_batch_key AS former
    WHERE
        former.batch_id = %(batch_id)s::bigint
        AND former.dedupe_key = ANY (%(dedupe_keys)s::text[])
),
-- Ids follow the order of the lines.
fresh AS MATERIALIZED (
    SELECT
        nextval('pgjobs_job_id_seq') AS id, first.args, first.kwargs, first.concurrency_key,
        first.rate_limit_keys, first.dedupe_key
    FROM (
        SELECT
            line.args, line.kwargs, line.concurrency_key, line.rate_limit_keys, line.dedupe_key
        FROM (
            SELECT DISTINCT ON (each.dedupe_key)
                each.args, each.kwargs, each.concurrency_key, each.rate_limit_keys,
                each.dedupe_key, each.number
            FROM unnest(
                string_to_array(%(args)s::text, E'\n'), string_to_array(%(kwargs)s::text, E'\n'),
                %(concurrency_keys)s::text[], %(rate_limit_keys)s::text[], %(dedupe_keys)s::text[]
            ) WITH ORDINALITY
                AS each (args, kwargs, concurrency_key, rate_limit_keys, dedupe_key, number)
            ORDER BY each.dedupe_key, each.number
        ) AS line
        WHERE line.dedupe_key NOT IN (SELECT known.dedupe_key FROM known)
        ORDER BY line.number
    ) AS first
),
-- In the order of keys, so that two such statements never wait for each other in a circle.
taken AS (
    INSERT INTO pgjobs_batch_key AS taking (batch_id, dedupe_key, job_id)
    SELECT target.id, fresh.dedupe_key, fresh.id
    FROM target
    CROSS JOIN fresh
    ORDER BY fresh.dedupe_key COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING taking.dedupe_key, taking.job_id
),
inserted AS (
    INSERT INTO pgjobs_job (
        id, {job.task_columns}, {job.start_columns}, args, kwargs, concurrency_key,
        rate_limit_keys, batch_id
    )
    SELECT
        fresh.id, {job.task_values}, {job.start_values}, fresh.args::json, fresh.kwargs::json,
        fresh.concurrency_key, fresh.rate_limit_keys, %(batch_id)s::bigint
    FROM fresh
    WHERE fresh.id IN (SELECT taken.job_id FROM taken)
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, jobs)
    SELECT target.id, (SELECT count(*) FROM taken) FROM target
)
SELECT taken.dedupe_key, taken.job_id AS id, TRUE AS is_new FROM taken
UNION ALL
SELECT known.dedupe_key, known.job_id, FALSE FROM known
