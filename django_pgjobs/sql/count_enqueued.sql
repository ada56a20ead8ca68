-- Count the jobs that came in between the last two samples but one, by minute, queue and task: by
-- now the transactions that inserted them have ended, unless they take longer than that.
-- Parameters: max_jobs integer (how many are looked at)
-- Returns: nothing
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey, pgjobs_queue_sample_measured
WITH sample AS (
    SELECT each.last_job_id, row_number() OVER (ORDER BY each.measured_at DESC, each.id DESC) AS place
    FROM (
        SELECT latest.id, latest.measured_at, latest.last_job_id
        FROM pgjobs_queue_sample AS latest
        WHERE latest.queue_name IS NULL AND latest.measured_at <= statement_timestamp()
        ORDER BY latest.measured_at DESC
        LIMIT 3
    ) AS each
),
span AS MATERIALIZED (
    SELECT
        max(sample.last_job_id) FILTER (WHERE sample.place = 3) AS above,
        max(sample.last_job_id) FILTER (WHERE sample.place = 2) AS upto
    FROM sample
)
INSERT INTO pgjobs_statistic (begins_at, queue_name, task_path, enqueued)
SELECT
    date_trunc('minute', LEAST(GREATEST(job.enqueued_at, now.at - interval '1 day'), now.at), 'UTC')
    AS minute,
    job.queue_name, job.task_path, count(*)
FROM (SELECT statement_timestamp() AS at) AS now
CROSS JOIN (
    (
        SELECT live.enqueued_at, live.queue_name, live.task_path
        FROM pgjobs_job_live AS live
        WHERE
            live.id > (SELECT span.above FROM span) AND live.id <= (SELECT span.upto FROM span)
        ORDER BY live.id
        LIMIT %(max_jobs)s::bigint
    )
    UNION ALL
    (
        SELECT ended.enqueued_at, ended.queue_name, ended.task_path
        FROM pgjobs_job_finished AS ended
        WHERE
            ended.id > (SELECT span.above FROM span) AND ended.id <= (SELECT span.upto FROM span)
        ORDER BY ended.id
        LIMIT %(max_jobs)s::bigint
    )
) AS job
GROUP BY minute, job.queue_name, job.task_path
