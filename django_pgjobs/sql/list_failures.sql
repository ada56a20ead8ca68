-- Group the newest failed jobs by task, exception and message, the largest or newest group first.
--
-- The message is that of failure_groups.py. Texts that differ in digits only are made equal and
-- counted before the regular expression sees them, once each. A period of the history is a 28th of
-- 7 days. The first time is that of the first failed attempt of a job if its error was the same; as
-- text, whose order is that of the times because all are in UTC.
-- Parameters: seconds double precision (how long ago they failed at most), max_jobs integer
--     (how many are looked at), max_groups integer, newest_first boolean
-- Returns: task_path, class, message, how many jobs, of the last hour, day and 7 days, first and
--     last time, id of an example, its message and the end of its traceback, the periods with
--     jobs (0 is the newest) and how many there were in each; then, the same in all rows: how
--     many jobs were looked at, when the first of them failed, how many groups there are; then
--     the time of the first attempt that failed so, as text, NULL if none says it
-- Locks: none
-- Index: pgjobs_job_by_end, pgjobs_job_finished_pkey
WITH digest AS MATERIALIZED (
    SELECT
        job.task_path, last.error_class, last.text,
        LEAST(
            floor(({job.finished_at.seconds_ago}) / 21600::double precision), 28
        )::integer AS number,
        count(*) AS jobs,
        count(*) FILTER (
            WHERE job.finished_at > statement_timestamp() - interval '1 hour'
        ) AS jobs_hour,
        min(job.finished_at) AS first_at, max(job.finished_at) AS last_at,
        min(last.first_text) AS first_text,
        max(job.id) AS newest_id
    FROM (
        SELECT failed.id, failed.task_path, failed.finished_at, failed.errors
        FROM pgjobs_job_finished AS failed
        WHERE
            failed.status = 'failed'
            AND failed.finished_at <= statement_timestamp()
            AND failed.finished_at
            >= statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
        ORDER BY failed.finished_at DESC
        LIMIT %(max_jobs)s::integer
    ) AS job
    -- The errors may be long: they are unpacked once, for all texts.
    CROSS JOIN LATERAL (
        SELECT jsonb_path_query_array(
            job.errors, 'strict $[0, last]'::jsonpath, '{}'::jsonb, TRUE
        ) AS ends
        OFFSET 0
    ) AS error
    CROSS JOIN LATERAL (
        SELECT
            COALESCE(left(error.ends -> -1 ->> 'exception_class'::text, 200), '')
            COLLATE "C" AS error_class,
            translate(
                COALESCE(left(error.ends -> -1 ->> 'message'::text, 400), ''),
                '123456789', '000000000'
            ) COLLATE "C" AS text,
            CASE
                WHEN
                    error.ends -> 0 ->> 'exception_class'::text
                    = error.ends -> -1 ->> 'exception_class'::text
                    AND (
                        -- Mostly so, and then the digits need not be taken away.
                        error.ends -> 0 ->> 'message'::text
                        = error.ends -> -1 ->> 'message'::text
                        OR translate(
                            left(error.ends -> 0 ->> 'message'::text, 400), '0123456789', ''
                        )
                        = translate(
                            left(error.ends -> -1 ->> 'message'::text, 400), '0123456789', ''
                        )
                    )
                    AND error.ends -> 0 ->> 'failed_at'::text
                    ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?[+]00:00$'
                    THEN error.ends -> 0 ->> 'failed_at'::text
            END COLLATE "C" AS first_text
    ) AS last
    GROUP BY job.task_path, last.error_class, last.text, number
),
masked AS MATERIALIZED (
    SELECT
        each.text,
        left(regexp_replace(
            each.text,
            '(?<![[:alnum:]])(?:''[^'']*(?:''|$)|"[^"]*(?:"|$))'
            '|[[:<:]][0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}[[:>:]]'
            '|[[:<:]][0-9a-fA-F]{8,}[[:>:]]'
            '|0[xX][0-9a-fA-F]+'
            '|[0-9]+(?:[.,:][0-9]+)*',
            '*', 'g'
        ), 200) AS error_message
    FROM (SELECT DISTINCT digest.text FROM digest) AS each
)
SELECT
    found.task_path, found.error_class, found.error_message, found.jobs, found.jobs_hour,
    found.jobs_day, found.jobs_week, found.first_at, found.last_at, found.newest_id,
    COALESCE(example.message, ''), COALESCE(example.traceback, ''), found.periods,
    found.period_jobs, found.all_jobs, found.all_since, found.all_groups, found.first_text
FROM (
    SELECT
        period.task_path, period.error_class, period.error_message,
        sum(period.jobs)::bigint AS jobs, sum(period.jobs_hour)::bigint AS jobs_hour,
        COALESCE(sum(period.jobs) FILTER (WHERE period.number < 4), 0)::bigint AS jobs_day,
        COALESCE(sum(period.jobs) FILTER (WHERE period.number < 28), 0)::bigint AS jobs_week,
        min(period.first_at) AS first_at, max(period.last_at) AS last_at,
        min(period.first_text) AS first_text,
        max(period.newest_id) AS newest_id,
        array_agg(period.number) AS periods, array_agg(period.jobs) AS period_jobs,
        sum(sum(period.jobs)) OVER ()::bigint AS all_jobs,
        min(min(period.first_at)) OVER () AS all_since, count(*) OVER () AS all_groups
    FROM (
        SELECT
            digest.task_path, digest.error_class, digest.number,
            masked.error_message,
            sum(digest.jobs)::bigint AS jobs, sum(digest.jobs_hour)::bigint AS jobs_hour,
            min(digest.first_at) AS first_at, max(digest.last_at) AS last_at,
            min(digest.first_text) AS first_text,
            max(digest.newest_id) AS newest_id
        FROM digest
        JOIN masked ON masked.text = digest.text
        GROUP BY
            digest.task_path, digest.error_class, masked.error_message, digest.number
    ) AS period
    GROUP BY period.task_path, period.error_class, period.error_message
    ORDER BY
        CASE WHEN %(newest_first)s::boolean THEN max(period.last_at) END DESC NULLS LAST,
        jobs DESC, period.task_path, period.error_class, period.error_message
    LIMIT %(max_groups)s::integer
) AS found
LEFT JOIN LATERAL (
    SELECT
        left(job.errors -> -1 ->> 'message'::text, 300) AS message,
        right(job.errors -> -1 ->> 'traceback'::text, 4000) AS traceback
    FROM pgjobs_job_finished AS job
    WHERE job.id = found.newest_id AND job.status = 'failed'
    LIMIT 1
) AS example ON TRUE
ORDER BY
    CASE WHEN %(newest_first)s::boolean THEN found.last_at END DESC NULLS LAST,
    found.jobs DESC, found.task_path, found.error_class, found.error_message
