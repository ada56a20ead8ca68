-- Count the jobs that have not finished, and enter what was found: a row for each of the queues with
-- the most jobs, and one of all together. Behind the first one count_enqueued.sql begins to count.
-- Parameters: max_jobs, max_queues integer (the oldest are looked at; how many get a row)
-- Returns: nothing
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_queue_sample_counted
WITH found AS (
    SELECT
        job.queue_name, job.status, job.hold, job.due_at, job.attempts, job.ready_at,
        job.enqueued_at, job.run_after
    FROM pgjobs_job_live AS job
    ORDER BY job.id
    LIMIT %(max_jobs)s::bigint + 1
),
{found.sizes}
INSERT INTO pgjobs_queue_sample (
    queue_name, ready, running, scheduled, retrying, blocked, waiting_since, last_job_id,
    counted_job_id, is_cut
)
SELECT
    size.queue_name, size.ready, size.running, size.scheduled, size.retrying,
    size.blocked, size.waiting_since,
    CASE
        WHEN size.is_sum
            THEN COALESCE(pg_sequence_last_value('pgjobs_job_id_seq'::regclass), 0)
    END,
    CASE
        WHEN
            size.is_sum
            AND NOT EXISTS (
                SELECT FROM pgjobs_queue_sample AS sample WHERE sample.counted_job_id IS NOT NULL
            )
            THEN COALESCE(pg_sequence_last_value('pgjobs_job_id_seq'::regclass), 0)
    END,
    (SELECT total.jobs FROM size AS total WHERE total.is_sum) > %(max_jobs)s::bigint
FROM size
ORDER BY size.is_sum DESC, size.jobs DESC
LIMIT %(max_queues)s::integer + 1
