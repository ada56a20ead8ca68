-- Delete a page of the jobs of trees that are marked for that. One that did not succeed stays as long
-- as somebody waits who is still to learn that, as in prune_jobs.
-- Parameters: roots bigint[] (of list_deleting); max_jobs integer
-- Returns: status of each job that was deleted
-- Locks: the deleted rows, SKIP LOCKED
-- Index: pgjobs_batch_pkey, pgjobs_batch_root, pgjobs_job_finished_batch,
--     pgjobs_dependency_predecessor_id_job_id_key, pgjobs_job_live_pkey
WITH tree AS MATERIALIZED (
    SELECT batch.id
    FROM pgjobs_batch AS root
    CROSS JOIN LATERAL (
        SELECT below.id FROM pgjobs_batch AS below WHERE below.root_id = root.id OFFSET 0
    ) AS batch
    WHERE
        root.id = ANY (%(roots)s::bigint[]) AND root.deleting_at IS NOT NULL
)
DELETE FROM pgjobs_job_finished AS job
WHERE
    job.id = ANY (ARRAY(
        SELECT taken.id
        FROM tree
        CROSS JOIN LATERAL (
            SELECT old.id
            FROM pgjobs_job_finished AS old
            WHERE
                -- Not "=", and an order that one index alone has: else the planner reads the table
                -- where most jobs were of one batch.
                old.batch_id >= tree.id AND old.batch_id <= tree.id AND {old.teaches_nobody}
            ORDER BY old.batch_id, old.status, old.id
            LIMIT %(max_jobs)s::integer
            FOR UPDATE SKIP LOCKED
        ) AS taken
        LIMIT %(max_jobs)s::integer
    ))
    -- Not IN: by that the planner may take the index of ends, and read all of it.
    AND job.status <> 'ready' AND job.status <> 'running'
RETURNING job.status
