-- Count the newest finished jobs per status, by the time they finished and by queue.
--
-- Buckets are whole multiples of their length since 1970, so that a bucket stays the same
-- while the time goes on.
-- Parameters: bucket_seconds integer, seconds double precision (how long ago they finished at
--     most), max_jobs integer (how many are looked at), max_queues integer
-- Returns: a row per status and bucket, and one per status and queue, those with the most
--     jobs; status, number of the bucket or NULL, queue_name or NULL; how many jobs, how many
--     of them in the last hour and in the last 5 minutes; then, the same in all rows: the
--     number of the bucket of now, how many jobs were looked at, when the first of them finished
-- Locks: none
-- Index: pgjobs_job_by_end
SELECT
    ranked.status, ranked.bucket, ranked.queue_name, ranked.jobs, ranked.jobs_hour,
    ranked.jobs_minutes,
    floor(date_part('epoch', statement_timestamp()) / %(bucket_seconds)s::integer::double precision)::bigint,
    ranked.looked_at, ranked.since
FROM (
    SELECT
        counted.status, counted.bucket, counted.queue_name, counted.jobs, counted.jobs_hour,
        counted.jobs_minutes,
        sum(counted.jobs) FILTER (WHERE counted.bucket IS NOT NULL) OVER ()::bigint AS looked_at,
        min(counted.first_at) OVER () AS since,
        row_number() OVER (
            PARTITION BY counted.bucket IS NULL
            ORDER BY counted.jobs_hour DESC, counted.queue_name, counted.status
        ) AS place
    FROM (
        SELECT
            job.status, job.bucket, job.queue_name, count(*) AS jobs,
            count(*) FILTER (
                WHERE job.finished_at > statement_timestamp() - interval '1 hour'
            ) AS jobs_hour,
            count(*) FILTER (
                WHERE job.finished_at > statement_timestamp() - interval '5 minutes'
            ) AS jobs_minutes,
            min(job.finished_at) AS first_at
        FROM (
            SELECT
                newest.status, newest.queue_name, newest.finished_at,
                floor(
                    date_part('epoch', newest.finished_at) / %(bucket_seconds)s::integer::double precision
                )::bigint AS bucket
            FROM (
                (
                    SELECT successful.status, successful.queue_name, successful.finished_at
                    FROM pgjobs_job_finished AS successful
                    WHERE
                        successful.status = 'successful'
                        AND successful.finished_at <= statement_timestamp()
                        AND successful.finished_at
                        >= statement_timestamp()
                        - make_interval(secs => %(seconds)s::double precision)
                    ORDER BY successful.finished_at DESC
                    LIMIT %(max_jobs)s::integer
                )
                UNION ALL
                (
                    SELECT failed.status, failed.queue_name, failed.finished_at
                    FROM pgjobs_job_finished AS failed
                    WHERE
                        failed.status = 'failed'
                        AND failed.finished_at <= statement_timestamp()
                        AND failed.finished_at
                        >= statement_timestamp()
                        - make_interval(secs => %(seconds)s::double precision)
                    ORDER BY failed.finished_at DESC
                    LIMIT %(max_jobs)s::integer
                )
                UNION ALL
                (
                    SELECT cancelled.status, cancelled.queue_name, cancelled.finished_at
                    FROM pgjobs_job_finished AS cancelled
                    WHERE
                        cancelled.status = 'cancelled'
                        AND cancelled.finished_at <= statement_timestamp()
                        AND cancelled.finished_at
                        >= statement_timestamp()
                        - make_interval(secs => %(seconds)s::double precision)
                    ORDER BY cancelled.finished_at DESC
                    LIMIT %(max_jobs)s::integer
                )
                ORDER BY finished_at DESC
                LIMIT %(max_jobs)s::integer
            ) AS newest
        ) AS job
        GROUP BY GROUPING SETS ((job.status, job.bucket), (job.status, job.queue_name))
    ) AS counted
) AS ranked
WHERE ranked.bucket IS NOT NULL OR ranked.place <= %(max_queues)s::integer
