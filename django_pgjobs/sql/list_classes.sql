-- Tell how many attempts waited, and ran, for how long, by queue or by task.
-- Parameters: class_seconds double precision (how long ago they ended at most; NULL: none is told);
--     by_task boolean (else by queue); task_paths text[] (NULL: all)
-- Returns: queue_name or task_path; how many waited, and ran, so long, by classes
-- Locks: none
-- Index: pgjobs_statistic_begin, pgjobs_statistic_sum_begin
SELECT attempts.name, {attempts.waits.class_sums}, {attempts.runs.class_sums}
FROM (
    SELECT
        statistic.name,
        -- Short lists are stored packed. So they are unpacked once, and not for each class.
        array_cat(statistic.waits, '{}'::bigint[]) AS waits,
        array_cat(statistic.runs, '{}'::bigint[]) AS runs
    FROM ({by_task.by_name}) AS statistic
    WHERE
        statistic.begins_at
        >= statement_timestamp() - make_interval(secs => %(class_seconds)s::double precision)
        -- Where the clock was set back, there are later ones.
        AND statistic.begins_at <= statement_timestamp()
        AND (%(task_paths)s::text[] IS NULL OR statistic.name = ANY (%(task_paths)s::text[]))
    OFFSET 0
) AS attempts
GROUP BY attempts.name
ORDER BY attempts.name
