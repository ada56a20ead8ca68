-- Tell how many attempts waited, and ran, for how long, by queue or by task.
-- Parameters: seconds double precision (how long ago they ended at most); by_task boolean (else by
--     queue); task_paths text[] (NULL: all)
-- Returns: queue_name or task_path; how many waited, and ran, so long, by classes
-- Locks: none
-- Index: pgjobs_statistic_begin
SELECT
    CASE WHEN %(by_task)s::boolean THEN statistic.task_path ELSE statistic.queue_name END AS name,
    {statistic.waits.class_sums},
    {statistic.runs.class_sums}
FROM pgjobs_statistic AS statistic
WHERE
    {statistic.is_of_any_period}
    AND statistic.begins_at
    >= statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
    AND (%(task_paths)s::text[] IS NULL OR statistic.task_path = ANY (%(task_paths)s::text[]))
GROUP BY name
ORDER BY name
