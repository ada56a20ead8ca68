-- List the tasks of which many jobs failed lately, those with the most first.
--
-- What succeeded and is in no statistics yet is counted one by one. Where that are too many it is left
-- out, and so is what failed meanwhile.
-- Parameters: recent double precision (failures of the last so many seconds are counted, from the
--     beginning of the minute on); closing double precision (seconds after which a minute is
--     written); least integer (failed jobs of a task); max_jobs integer (failed jobs that are looked
--     at); max_rows integer
-- Returns: task_path; since when, as an epoch; how many failed and succeeded, both up to the same moment
-- Locks: none
-- Index: pgjobs_job_by_end, pgjobs_statistic_begin
WITH span AS MATERIALIZED (
    SELECT
        date_trunc(
            'minute', statement_timestamp() - make_interval(secs => %(recent)s::double precision),
            'UTC'
        ) AS since,
        {closing.minute_written} AS closed
),
newest AS MATERIALIZED (
    SELECT job.task_path
    FROM pgjobs_job_finished AS job
    WHERE
        job.status = 'successful' AND job.finished_at >= {closing.minute_written}
        AND job.finished_at <= statement_timestamp()
    ORDER BY job.finished_at DESC
    LIMIT %(max_jobs)s::integer + 1
),
few AS MATERIALIZED (
    SELECT count(*) <= %(max_jobs)s::integer AS holds FROM newest
),
failing AS MATERIALIZED (
    SELECT recent.task_path, count(*) AS failed
    FROM (
        SELECT job.task_path
        FROM pgjobs_job_finished AS job
        WHERE
            job.status = 'failed' AND job.finished_at >= (SELECT span.since FROM span)
            AND job.finished_at <= statement_timestamp()
            AND (job.finished_at < (SELECT span.closed FROM span) OR (SELECT few.holds FROM few))
        ORDER BY job.finished_at DESC
        LIMIT %(max_jobs)s::integer
    ) AS recent
    GROUP BY recent.task_path
    HAVING count(*) >= %(least)s::integer
    ORDER BY count(*) DESC, recent.task_path
    LIMIT %(max_rows)s::integer
),
ended AS (
    SELECT each.task_path, sum(each.successful) AS successful
    FROM (
        SELECT statistic.task_path, statistic.successful
        FROM pgjobs_statistic AS statistic
        WHERE
            {statistic.is_of_any_period}
            AND statistic.begins_at >= (SELECT span.since FROM span)
            AND statistic.begins_at < (SELECT span.closed FROM span)
            AND statistic.task_path = ANY (ARRAY(SELECT failing.task_path FROM failing))
        UNION ALL
        SELECT newest.task_path, 1 FROM newest WHERE (SELECT few.holds FROM few)
    ) AS each
    GROUP BY each.task_path
)
SELECT
    failing.task_path, date_part('epoch', span.since) AS since, failing.failed,
    COALESCE(ended.successful, 0) AS successful
FROM failing
CROSS JOIN span
LEFT JOIN ended ON ended.task_path = failing.task_path
ORDER BY failing.failed DESC, failing.task_path
