-- Give jobs that were inserted without it what their tasks declare, and give them back: the attempt
-- that came upon them does not count. One whose unique key a live job has ends as cancelled, if it
-- *yields*, else it goes on without the key. Of several that come together the oldest has it.
--
-- Where a unique key is held until the first claim, this one does not count: the claim is 0 again,
-- unless an attempt counted before. Nobody writes under this one any more: the next is another number.
-- Parameters: waits boolean (else jobs that are locked are passed over); ids, claims bigint[];
--     queue_names text[]; priorities integer[]; concurrency_keys text[] (entries may be NULL, as
--     all that follow); concurrency_limits integer[]; skips_waiting boolean[]; rate_limit_keys
--     text[]; rate_costs integer[]; unique_keys text[]; until_claimed boolean[]; yields boolean[];
--     asyncs boolean[]; note text (of one that ends, with %%s for the id of the other); channel text
-- Returns: id of each job that was given back or cancelled; and NULL per queue that was notified
-- Locks: the given rows, by primary key; waits for transactions that just inserted a job with the
--     same unique key
-- Index: pgjobs_job_live_pkey, pgjobs_job_unique
WITH filling AS MATERIALIZED (
    SELECT
        given.id, given.claim, given.queue_name, given.priority, given.concurrency_key,
        given.concurrency_limit, given.skips_waiting, given.rate_limit_keys, given.rate_cost,
        given.unique_key, given.until_claimed, given.yields, given.is_async,
        COALESCE(
            (
                SELECT twin.id
                FROM pgjobs_job_live AS twin
                WHERE
                    twin.unique_key = given.unique_key AND twin.task_path = job.task_path
                    AND {twin.occupies_key}
                    AND twin.id <> given.id
            ),
            CASE
                WHEN given.unique_key IS NOT NULL
                    THEN NULLIF(
                        min(given.id) FILTER (WHERE job.cancel_requested_at IS NULL)
                        OVER (PARTITION BY job.task_path, given.unique_key),
                        given.id
                    )
            END
        ) AS twin_id
    FROM pgjobs_job_live AS job
    JOIN unnest(
        %(ids)s::bigint[], %(claims)s::bigint[], %(queue_names)s::text[], %(priorities)s::integer[],
        %(concurrency_keys)s::text[], %(concurrency_limits)s::integer[],
        %(skips_waiting)s::boolean[], %(rate_limit_keys)s::text[], %(rate_costs)s::integer[],
        %(unique_keys)s::text[], %(until_claimed)s::boolean[], %(yields)s::boolean[],
        %(asyncs)s::boolean[]
    ) AS given (
        id, claim, queue_name, priority, concurrency_key, concurrency_limit, skips_waiting,
        rate_limit_keys, rate_cost, unique_key, until_claimed, yields, is_async
    ) ON given.id = job.id
    WHERE job.id = ANY (%(ids)s::bigint[]) AND {job.runs}
),
filled AS (
    UPDATE pgjobs_job AS job
    SET
        status = CASE
            WHEN job.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN filling.yields AND filling.twin_id IS NOT NULL THEN 'cancelled'
            ELSE 'ready'
        END,
        finished_at = CASE
            WHEN job.cancel_requested_at IS NOT NULL THEN statement_timestamp()
            WHEN filling.yields AND filling.twin_id IS NOT NULL THEN statement_timestamp()
        END,
        claim = CASE
            WHEN filling.until_claimed AND job.attempts = 1 THEN 0
            ELSE mod(GREATEST(job.claim, 0), 9000000000000000000) + 1
        END,
        is_declared = TRUE,
        is_async = filling.is_async,
        queue_name = filling.queue_name,
        priority = filling.priority,
        concurrency_key = filling.concurrency_key,
        concurrency_limit = filling.concurrency_limit,
        skips_waiting = filling.skips_waiting,
        rate_limit_keys = filling.rate_limit_keys,
        rate_cost = filling.rate_cost,
        unique_key = CASE
            WHEN filling.yields OR filling.twin_id IS NULL THEN filling.unique_key
        END,
        unique_until_claimed = filling.until_claimed,
        worker_id = NULL,
        progress = NULL,
        due_at = NULL,
        attempts = GREATEST(job.attempts, 1) - 1,
        worker_ids = job.worker_ids[:cardinality(job.worker_ids) - 1],
        started_at = CASE WHEN job.attempts > 1 THEN job.started_at END,
        last_attempted_at = CASE WHEN job.attempts > 1 THEN job.last_attempted_at END,
        note = CASE
            WHEN filling.yields AND filling.twin_id IS NOT NULL
                THEN format(%(note)s::text, filling.twin_id)
            ELSE ''
        END
    FROM filling
    WHERE
        {job.is_to_finish}
        AND {job.runs}
        AND job.id = filling.id AND job.claim = filling.claim
    RETURNING job.id, job.queue_name, job.status, job.batch_id, {job.cancel_noted} AS noted
),
noted AS (
    {filled.changes_of_batches}
)
SELECT filled.id FROM filled
UNION ALL
SELECT NULL
FROM (SELECT DISTINCT filled.queue_name FROM filled WHERE filled.status = 'ready') AS ready
CROSS JOIN LATERAL (SELECT pg_notify(%(channel)s::text, ready.queue_name) AS said) AS notified
WHERE EXISTS (SELECT FROM pgjobs_worker AS worker WHERE worker.listening)
