-- Tell of each queue how many of its ready jobs wait for a rate limit that lets none go.
-- Parameters: max_live integer (live jobs, the oldest, that are looked at)
-- Returns: queue_name; how many jobs; since when the oldest other ready job waits, as an epoch or NULL
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_rate_limit_pkey
SELECT
    judged.queue_name, count(*) FILTER (WHERE judged.is_vain) AS jobs,
    date_part('epoch', min(judged.waiting_since) FILTER (WHERE NOT judged.is_vain)) AS others_since
FROM (
    SELECT job.queue_name, {job.waiting_since} AS waiting_since, {job.is_vain} AS is_vain
    FROM (
        SELECT
            live.queue_name, live.status, live.due_at, live.hold, live.ready_at, live.enqueued_at,
            live.run_after, live.rate_limit_keys, live.rate_cost
        FROM pgjobs_job_live AS live
        ORDER BY live.id
        LIMIT %(max_live)s::integer
    ) AS job
    WHERE {job.is_ready}
) AS judged
GROUP BY judged.queue_name
HAVING count(*) FILTER (WHERE judged.is_vain) > 0
