-- List jobs of a tree that did not succeed: a page, in order of batch and id.
-- Parameters: batch_id bigint (at the top); statuses text[]; of_gather_and_then boolean (only
--     the jobs of these whose predecessors are complete; else all others); despite_failures boolean
--     (of the predecessors; else only where none has failed); behind_batch, behind_id bigint (the
--     batch and job where the page before ended, 0 and 0 at first); max_jobs integer
-- Returns: batch_id, id
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_parent, pgjobs_job_finished_batch
WITH RECURSIVE {batch_id.tree}
SELECT tree.id AS batch_id, job.id
FROM tree
CROSS JOIN pg_catalog.unnest(%(statuses)s::text[]) AS wanted (status)
CROSS JOIN LATERAL (
    SELECT old.id
    FROM pgjobs_job_finished AS old
    WHERE
        old.batch_id = tree.id AND old.status = wanted.status
        AND %(of_gather_and_then)s::boolean = (
            COALESCE(old.source_id, -1) = 0
            AND COALESCE(tree.follows, '') IN ('gather', 'completion')
        )
        AND old.id > CASE
            WHEN tree.id = %(behind_batch)s::bigint THEN %(behind_id)s::bigint
            ELSE '-9223372036854775808'
        END
    ORDER BY old.batch_id, old.status, old.id
    LIMIT %(max_jobs)s::integer
) AS job
WHERE
    tree.id >= %(behind_batch)s::bigint
    AND (
        NOT %(of_gather_and_then)s::boolean
        OR tree.open_predecessors <= 0
        AND (tree.failed_predecessors <= 0 OR %(despite_failures)s::boolean)
    )
ORDER BY tree.id, job.id
LIMIT %(max_jobs)s::integer
