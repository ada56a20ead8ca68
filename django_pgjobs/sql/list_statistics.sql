-- Tell what ended and came in, by time, and by queue or task if asked for: of minutes that are over
-- and written as the statistics say, after that by the finished jobs themselves, if they are few.
--
-- Buckets are whole multiples of their length since 1970, so that a bucket stays the same while
-- the time goes on.
-- Parameters: bucket_seconds integer; seconds double precision (how long ago the first bucket may
--     end); by_queue, by_task boolean; closing double precision (seconds after which a minute is
--     written); max_jobs integer (how many are few)
-- Returns: number of the bucket; queue_name, task_path, NULL if not asked for; enqueued, successful, failed,
--     cancelled, retried, lost; up to when everything is counted, NULL in rows with a name. The last row
--     is of the bucket of now, without names, perhaps with nothing in it
-- Locks: none
-- Index: pgjobs_statistic_begin, pgjobs_job_by_end
WITH {closing.ended_lately},
{span.buckets}
SELECT
    numbers.bucket, numbers.queue, numbers.task,
    sum(numbers.enqueued)::bigint, sum(numbers.successful)::bigint, sum(numbers.failed)::bigint,
    sum(numbers.cancelled)::bigint, sum(numbers.retried)::bigint, sum(numbers.lost)::bigint,
    CASE WHEN numbers.queue IS NULL AND numbers.task IS NULL THEN (SELECT few.upto FROM few) END
FROM (
    SELECT bucket.number AS bucket, ended.*
    FROM bucket
    CROSS JOIN LATERAL (
        SELECT
            CASE WHEN %(by_queue)s::boolean THEN statistic.queue_name END AS queue,
            CASE WHEN %(by_task)s::boolean THEN statistic.task_path END AS task,
            sum(statistic.enqueued) AS enqueued, sum(statistic.successful) AS successful,
            sum(statistic.failed) AS failed, sum(statistic.cancelled) AS cancelled,
            sum(statistic.retried) AS retried, sum(statistic.lost) AS lost
        FROM pgjobs_statistic AS statistic
        WHERE
            {statistic.is_of_any_period}
            AND statistic.begins_at >= bucket.begins_at
            AND statistic.begins_at < bucket.ends_at
        GROUP BY queue, task
    ) AS ended
    UNION ALL
    SELECT
        floor(
            date_part('epoch', newest.finished_at)
            / %(bucket_seconds)s::integer::double precision
        )::bigint,
        CASE WHEN %(by_queue)s::boolean THEN newest.queue_name END,
        CASE WHEN %(by_task)s::boolean THEN newest.task_path END,
        0, (newest.status = 'successful')::integer, (newest.status = 'failed')::integer,
        (newest.status = 'cancelled')::integer, 0, 0
    FROM newest
    WHERE (SELECT few.holds FROM few)
    UNION ALL
    SELECT
        floor(
            date_part('epoch', statement_timestamp())
            / %(bucket_seconds)s::integer::double precision
        )::bigint,
        NULL, NULL, 0, 0, 0, 0, 0, 0
) AS numbers
GROUP BY numbers.bucket, numbers.queue, numbers.task
ORDER BY numbers.bucket, numbers.queue, numbers.task
