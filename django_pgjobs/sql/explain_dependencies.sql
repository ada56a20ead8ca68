-- List jobs that a job waits for.
-- Parameters: id bigint; max_jobs integer
-- Returns: id of a predecessor, its status (NULL: it is gone), how many there are
-- Locks: none
-- Index: pgjobs_dependency_job, pgjobs_job_live_pkey, pgjobs_job_finished_pkey
SELECT edge.predecessor_id, predecessor.status, edge.jobs
FROM (
    SELECT dependency.predecessor_id, count(*) OVER () AS jobs
    FROM pgjobs_dependency AS dependency
    -- In an order that one index alone begins with.
    WHERE dependency.job_id >= %(id)s::bigint AND dependency.job_id <= %(id)s::bigint
    ORDER BY dependency.job_id, dependency.predecessor_id
    LIMIT %(max_jobs)s::integer
) AS edge
LEFT JOIN LATERAL (
    SELECT job.status
    FROM pgjobs_job AS job
    WHERE job.id = edge.predecessor_id
    LIMIT 1
) AS predecessor ON TRUE
ORDER BY edge.predecessor_id
