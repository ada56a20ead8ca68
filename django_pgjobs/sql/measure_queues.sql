-- Count the jobs that have not finished, and enter what was found: a row for each of the queues with
-- the most jobs, and one of all together.
-- Parameters: max_jobs, max_queues integer (how many are looked at, and get a row)
-- Returns: nothing
-- Locks: none
-- Index: none, it reads all live jobs
WITH job AS MATERIALIZED (
    SELECT
        found.queue_name,
        CASE
            WHEN found.status = 'running' THEN 1
            WHEN found.hold IS NOT NULL THEN 5
            WHEN found.due_at IS NULL THEN 2
            WHEN found.attempts > 0 THEN 3
            ELSE 4
        END AS kind,
        CASE WHEN {found.is_ready} THEN {found.waiting_since} END AS waiting_since
    FROM (SELECT live.* FROM pgjobs_job_live AS live LIMIT %(max_jobs)s::bigint + 1) AS found
),
counted AS (
    SELECT
        job.queue_name,
        GROUPING(job.queue_name) = 1 AS is_sum,
        count(*) AS jobs,
        count(*) FILTER (WHERE job.kind = 2) AS ready,
        count(*) FILTER (WHERE job.kind = 1) AS running,
        count(*) FILTER (WHERE job.kind = 4) AS scheduled,
        count(*) FILTER (WHERE job.kind = 3) AS retrying,
        count(*) FILTER (WHERE job.kind = 5) AS held,
        min(job.waiting_since) AS waiting_since
    FROM job
    GROUP BY GROUPING SETS ((job.queue_name), ())
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
