-- Count the jobs that have not finished, and enter what was found: a row for each of the queues with
-- the most jobs, and one of all together.
-- Parameters: max_jobs, max_queues integer (the oldest are looked at; how many get a row)
-- Returns: nothing
-- Locks: none
-- Index: pgjobs_job_live_pkey
WITH found AS MATERIALIZED (
    SELECT
        job.queue_name, job.status, job.hold, job.due_at, job.attempts, job.ready_at,
        job.enqueued_at, job.run_after
    FROM pgjobs_job_live AS job
    ORDER BY job.id
    LIMIT %(max_jobs)s::bigint + 1
),
counted AS (
    {found.sizes}
)
INSERT INTO pgjobs_queue_sample (
    queue_name, ready, running, scheduled, retrying, held, waiting_since, last_job_id, is_cut
)
SELECT
    counted.queue_name, counted.ready, counted.running, counted.scheduled, counted.retrying,
    counted.held, counted.waiting_since,
    CASE WHEN counted.is_sum THEN pg_sequence_last_value('pgjobs_job_id_seq'::regclass) END,
    (SELECT total.jobs FROM counted AS total WHERE total.is_sum) > %(max_jobs)s::bigint
FROM counted
ORDER BY counted.is_sum DESC, counted.jobs DESC
LIMIT %(max_queues)s::integer + 1
