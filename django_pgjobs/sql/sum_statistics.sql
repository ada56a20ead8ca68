-- Tell what ended and came in by time, and then by queue: in all of that time. What is counted, and
-- what a bucket is, list_statistics.sql says.
--
-- Both in one scan: each queue in each bucket would be rows by the thousand, to be added up by who
-- asks.
-- Parameters: bucket_seconds integer; seconds double precision (how long ago the first bucket may
--     end); by_task boolean (FALSE); closing double precision (seconds after which a minute is
--     written); max_jobs integer (how many are few); class_seconds double precision, task_paths
--     text[] (NULL or as list_classes.sql has them; NULL)
-- Returns: number of the bucket, NULL in other rows; queue_name, NULL in the rows of buckets; NULL;
--     enqueued, successful, failed, cancelled, retried, lost; up to when everything is counted; two
--     NULL. The rows of buckets come first, by time; the last of them is of now, perhaps with
--     nothing in it. The rows of *class_seconds* have NULL for numbers, and behind them what
--     list_classes.sql returns
-- Locks: none
-- Index: pgjobs_statistic_begin, pgjobs_statistic_sum_begin, pgjobs_job_by_end
WITH {closing.ended_lately},
numbers AS (
    SELECT
        statistic.begins_at AS at, statistic.name AS queue,
        sum(statistic.enqueued)::bigint AS enqueued,
        sum(statistic.successful)::bigint AS successful, sum(statistic.failed)::bigint AS failed,
        sum(statistic.cancelled)::bigint AS cancelled, sum(statistic.retried)::bigint AS retried,
        sum(statistic.lost)::bigint AS lost
    FROM ({by_task.by_name}) AS statistic
    WHERE
        statistic.begins_at >= (SELECT span.since FROM span)
        AND statistic.begins_at < (SELECT span.closed FROM span)
    GROUP BY at, queue
    UNION ALL
    SELECT
        newest.finished_at, newest.queue_name, 0, (newest.status = 'successful')::integer,
        (newest.status = 'failed')::integer, (newest.status = 'cancelled')::integer, 0, 0
    FROM newest
    WHERE (SELECT few.holds FROM few)
    UNION ALL
    SELECT statement_timestamp(), NULL, 0, 0, 0, 0, 0, 0
)
SELECT
    floor(date_part('epoch', numbers.at) / %(bucket_seconds)s::integer::double precision)::bigint AS bucket,
    numbers.queue, NULL,
    sum(numbers.enqueued)::bigint, sum(numbers.successful)::bigint, sum(numbers.failed)::bigint,
    sum(numbers.cancelled)::bigint, sum(numbers.retried)::bigint, sum(numbers.lost)::bigint,
    (SELECT few.upto FROM few), NULL::bigint[], NULL::bigint[]
FROM numbers
GROUP BY GROUPING SETS ((bucket), (numbers.queue))
HAVING GROUPING(numbers.queue) = 1 OR numbers.queue IS NOT NULL
UNION ALL
SELECT NULL, class.name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, class.waits, class.runs
FROM ({rows of list_classes}) AS class (name, waits, runs)
ORDER BY bucket
