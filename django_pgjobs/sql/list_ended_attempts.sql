-- Tell how the attempts of some minutes ended, by queue and task, as the statistics say. These count
-- jobs that were cancelled, with or without an attempt: as many as have a running time and ended in
-- no other way had one. Where workers were lost, a few too many may be left out.
-- Parameters: first, last bigint (minutes since 1970, the last one left out)
-- Returns: queue_name, task_path; successful, failed, cancelled, retried, lost
-- Locks: none
-- Index: pgjobs_statistic_begin
SELECT
    ended.queue_name, ended.task_path, ended.successful, ended.failed,
    LEAST(
        ended.cancelled,
        GREATEST(ended.ran - ended.successful - ended.failed - ended.retried, 0)
    ),
    ended.retried, ended.lost
FROM (
    SELECT
        statistic.queue_name, statistic.task_path, sum(statistic.successful)::bigint AS successful,
        sum(statistic.failed)::bigint AS failed, sum(statistic.cancelled)::bigint AS cancelled,
        sum(statistic.retried)::bigint AS retried, sum(statistic.lost)::bigint AS lost,
        sum((
            SELECT COALESCE(sum(class.jobs), 0)
            FROM pg_catalog.unnest(statistic.runs) AS class (jobs)
        ))::bigint AS ran
    FROM pgjobs_statistic AS statistic
    WHERE
        {statistic.is_of_any_period}
        AND statistic.begins_at >= timestamptz 'epoch' + %(first)s::bigint * interval '1 minute'
        AND statistic.begins_at < timestamptz 'epoch' + %(last)s::bigint * interval '1 minute'
    GROUP BY statistic.queue_name, statistic.task_path
) AS ended
