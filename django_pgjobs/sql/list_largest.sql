-- Tell how many jobs finished by time, of the queues or tasks with the most of them, and of the others
-- together. What is counted, and what a bucket is, list_statistics.sql says.
-- Parameters: bucket_seconds integer; seconds double precision (how long ago the first bucket may
--     end); by_task boolean (else by queue); max_names integer; others text (the name of those that
--     statistics do not tell apart); closing double precision (seconds after which a minute is
--     written); max_jobs integer (how many are few)
-- Returns: queue_name or task_path, NULL: of the others; the numbers of the buckets with jobs and how
--     many there were in each; NULL. The last row is of the bucket of now, without jobs, and says up
--     to when everything is counted
-- Locks: none
-- Index: pgjobs_statistic_begin, pgjobs_statistic_sum_begin, pgjobs_job_by_end
WITH {closing.ended_lately},
{span.buckets},
found AS MATERIALIZED (
    SELECT bucket.number AS bucket, ended.name, ended.jobs
    FROM bucket
    CROSS JOIN LATERAL (
        SELECT
            statistic.name,
            sum(statistic.successful + statistic.failed + statistic.cancelled)::bigint AS jobs
        FROM ({by_task.by_name}) AS statistic
        WHERE
            statistic.begins_at >= bucket.begins_at
            AND statistic.begins_at < bucket.ends_at
        GROUP BY statistic.name
    ) AS ended
    UNION ALL
    SELECT
        floor(
            date_part('epoch', newest.finished_at)
            / %(bucket_seconds)s::integer::double precision
        )::bigint,
        CASE WHEN %(by_task)s::boolean THEN newest.task_path ELSE newest.queue_name END, 1
    FROM newest
    WHERE (SELECT few.holds FROM few)
),
largest AS (
    SELECT found.name
    FROM found
    WHERE found.name <> %(others)s::text
    GROUP BY found.name
    ORDER BY sum(found.jobs) DESC, found.name
    LIMIT %(max_names)s::integer
)
SELECT shown.name, shown.buckets, shown.jobs, shown.upto
FROM (
    SELECT
        summed.name, array_agg(summed.bucket) AS buckets, array_agg(summed.jobs) AS jobs,
        NULL::timestamptz AS upto
    FROM (
        SELECT found.bucket, largest.name, sum(found.jobs)::bigint AS jobs
        FROM found
        LEFT JOIN largest ON largest.name = found.name
        WHERE found.jobs > 0
        GROUP BY found.bucket, largest.name
    ) AS summed
    GROUP BY summed.name
    UNION ALL
    SELECT
        NULL,
        ARRAY[
            floor(
                date_part('epoch', statement_timestamp())
                / %(bucket_seconds)s::integer::double precision
            )::bigint
        ],
        ARRAY[0::bigint], few.upto
    FROM few
) AS shown
ORDER BY shown.upto NULLS FIRST
