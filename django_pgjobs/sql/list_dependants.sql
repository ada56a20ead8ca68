-- List the jobs that are cancelled if some jobs are: those that wait for them and are to be
-- cancelled with them, those that wait for these, and so on.
-- Parameters: ids bigint[]; max_jobs integer
-- Returns: the ids of the jobs, without the given ones
-- Locks: none
-- Index: none, it uses pgjobs_dependency_predecessor_id_job_id_key
WITH RECURSIVE reached (id) AS (
    SELECT given.id FROM pg_catalog.unnest(%(ids)s::bigint[]) AS given (id)
    UNION
    SELECT dependency.job_id
    FROM reached
    -- As a join it might read all dependencies, for each step.
    CROSS JOIN LATERAL (
        SELECT edge.job_id
        FROM pgjobs_dependency AS edge
        WHERE edge.predecessor_id = reached.id AND edge.after_failure = 'cancel'
        OFFSET 0
    ) AS dependency
)
SELECT reached.id
FROM reached
WHERE reached.id <> ALL (%(ids)s::bigint[])
LIMIT %(max_jobs)s::integer
