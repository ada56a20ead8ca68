-- Tell what was usual of each task: how long its attempts ran, and how many of its jobs succeeded and
-- failed before those of now. Both in one scan: it reads every row of the statistics of that time.
-- Parameters: seconds double precision (how long ago attempts ended at most); earliest, latest double
--     precision (jobs that ended so many seconds ago); by_task boolean (TRUE)
-- Returns: task_path; how many attempts ran so long, by classes; successful, failed
-- Locks: none
-- Index: pgjobs_statistic_begin, pgjobs_statistic_sum_begin
SELECT
    past.name, {past.runs.class_sums},
    LEAST(COALESCE(sum(past.successful) FILTER (WHERE past.is_counted), 0), 1e15)::bigint,
    LEAST(COALESCE(sum(past.failed) FILTER (WHERE past.is_counted), 0), 1e15)::bigint
FROM (
    SELECT
        statistic.name, statistic.successful, statistic.failed,
        -- Short lists are stored packed. So they are unpacked once, and not for each class.
        array_cat(statistic.runs, '{}'::bigint[]) AS runs,
        statistic.begins_at
        >= statement_timestamp() - make_interval(secs => %(earliest)s::double precision)
        AND statistic.begins_at
        < statement_timestamp() - make_interval(secs => %(latest)s::double precision)
        AS is_counted
    FROM ({by_task.by_name}) AS statistic
    WHERE
        statistic.begins_at
        >= statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
        -- Where the clock was set back, there are later ones.
        AND statistic.begins_at <= statement_timestamp()
    OFFSET 0
) AS past
GROUP BY past.name
