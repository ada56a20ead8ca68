-- Count the jobs that prune_jobs.sql would delete, up to a number.
-- Parameters: status text; retention, span double precision (seconds); max_jobs integer
-- Returns: one row: how many, at most max_jobs
-- Locks: none
-- Index: pgjobs_job_by_end, pgjobs_dependency_predecessor_id_job_id_key,
--     pgjobs_job_live_pkey
SELECT count(*)
FROM (
    SELECT
    FROM pgjobs_job_finished AS old
    WHERE {old.is_past_retention}
    ORDER BY old.finished_at
    LIMIT %(max_jobs)s::integer
) AS counted
