-- Tell how many jobs of each task succeeded and failed within a time, as the statistics say.
-- Parameters: earliest, latest double precision (seconds ago)
-- Returns: task_path, successful, failed
-- Locks: none
-- Index: pgjobs_statistic_begin
SELECT
    statistic.task_path, LEAST(sum(statistic.successful), 1e15)::bigint,
    LEAST(sum(statistic.failed), 1e15)::bigint
FROM pgjobs_statistic AS statistic
WHERE
    {statistic.is_of_any_period}
    AND statistic.begins_at
    >= statement_timestamp() - make_interval(secs => %(earliest)s::double precision)
    AND statistic.begins_at
    < statement_timestamp() - make_interval(secs => %(latest)s::double precision)
GROUP BY statistic.task_path
