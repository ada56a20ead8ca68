-- Tell how many jobs of each task succeeded and failed within a time, as the statistics say.
-- Parameters: earliest, latest double precision (seconds ago); by_task boolean (TRUE)
-- Returns: task_path, successful, failed
-- Locks: none
-- Index: pgjobs_statistic_begin, pgjobs_statistic_sum_begin
SELECT
    statistic.name, LEAST(sum(statistic.successful), 1e15)::bigint,
    LEAST(sum(statistic.failed), 1e15)::bigint
FROM ({by_task.by_name}) AS statistic
WHERE
    statistic.begins_at
    >= statement_timestamp() - make_interval(secs => %(earliest)s::double precision)
    AND statistic.begins_at
    < statement_timestamp() - make_interval(secs => %(latest)s::double precision)
GROUP BY statistic.name
