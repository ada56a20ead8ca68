-- Notify idle workers of the queues whose jobs wait for a key that has become free.
-- Parameters: channel text; keys text[] (concurrency keys of jobs that just ended)
-- Returns: one row per queue
-- Locks: PostgreSQL's notification queue, at commit, if a worker listens
-- Index: pgjobs_job_key_order
SELECT pg_notify(%(channel)s::text, waiting.queue_name)
FROM (
    SELECT DISTINCT oldest.queue_name
    FROM pg_catalog.unnest(%(keys)s::text[]) AS freed (key)
    CROSS JOIN LATERAL (
        SELECT job.queue_name
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_in_line} AND {job.is_walked} AND job.concurrency_key = freed.key
        ORDER BY job.id
        LIMIT 1
    ) AS oldest
    WHERE EXISTS (SELECT FROM pgjobs_worker AS worker WHERE worker.listening)
) AS waiting
