-- Resolve what nobody else has: a page of the dependencies on jobs that are not live any more.
-- Their rows were deleted, or changed by hand, or a waiting job's row was locked for too long.
-- Parameters: acts boolean (else nothing is changed); predecessor_id, job_id bigint (where the page before ended, 0 and 0 at first);
--     max_dependencies integer
-- Returns: predecessor_id, job_id of the last of the page; no row behind the end
-- Locks: the waiting jobs, in order of id; gives up after half a second
-- Index: pgjobs_dependency_predecessor_id_job_id_key
WITH page AS MATERIALIZED (
    SELECT edge.predecessor_id, edge.job_id
    FROM pgjobs_dependency AS edge
    WHERE
        (edge.predecessor_id, edge.job_id) > (%(predecessor_id)s::bigint, %(job_id)s::bigint)
    ORDER BY edge.predecessor_id, edge.job_id
    LIMIT %(max_dependencies)s::integer
),
swept AS (
    SELECT DISTINCT
        page.predecessor_id,
        -- The first may have begun on the page before.
        CASE WHEN page.predecessor_id = %(predecessor_id)s::bigint THEN %(job_id)s::bigint END
            AS behind
    FROM page
    WHERE %(acts)s::boolean
)
(
    SELECT page.predecessor_id, page.job_id
    FROM page
    ORDER BY page.predecessor_id DESC, page.job_id DESC
    LIMIT 1
)
UNION ALL
-- No row more, but the function is called; what it leaves is on a page that follows.
SELECT NULL, NULL
FROM pgjobs_resolve_v1(
    ARRAY(SELECT swept.predecessor_id FROM swept ORDER BY swept.predecessor_id),
    (SELECT count(*)::integer FROM page),
    ARRAY(SELECT swept.behind FROM swept ORDER BY swept.predecessor_id)
) AS resolved
WHERE resolved.queue_name IS NULL AND resolved.predecessor_id IS NULL
