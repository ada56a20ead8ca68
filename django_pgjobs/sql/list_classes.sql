-- Tell how many attempts waited, and ran, for how long, by queue or by task.
-- Parameters: seconds double precision (how long ago they ended at most); by_task boolean (else by
--     queue); task_paths text[] (NULL: all)
-- Returns: queue_name or task_path; how many waited, and ran, so long, by classes
-- Locks: none
-- Index: pgjobs_statistic_begin, pgjobs_statistic_sum_begin
{seconds.class_rows}
ORDER BY attempts.name
