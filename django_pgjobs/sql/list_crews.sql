-- Tell what live workers take: a row of all those that take the same.
-- Parameters: max_rows integer
-- Returns: backends, queues, excluded_queues as in pgjobs_worker; whether they were asked to claim
--     nothing; the sum of their slots, and of the jobs in threads that they hold
-- Locks: none
-- Index: pgjobs_job_running
SELECT
    worker.backends, worker.queues, worker.excluded_queues, worker.is_quiet,
    sum(worker.slots) AS slots,
    sum((
        SELECT count(*)
        FROM pgjobs_job_live AS job
        WHERE job.status = 'running' AND job.worker_id = worker.id AND NOT job.is_async
    )) AS running
FROM (
    SELECT
        live.id, live.backends, live.queues, live.excluded_queues, live.slots,
        NOT ({live.claims}) AS is_quiet
    FROM pgjobs_worker AS live
    WHERE {live.is_live}
) AS worker
GROUP BY worker.backends, worker.queues, worker.excluded_queues, worker.is_quiet
LIMIT %(max_rows)s::integer
