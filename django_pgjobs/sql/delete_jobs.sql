-- Delete finished jobs, but for those of workflows that are not complete: what follows needs them.
-- One that did not succeed stays as long as somebody waits who is still to learn that, as in
-- prune_jobs.
-- Parameters: ids bigint[]; statuses text[]: those of other jobs stay
-- Returns: id
-- Locks: the rows, in order of id, SKIP LOCKED
-- Index: pgjobs_job_finished_pkey, pgjobs_batch_pkey,
--     pgjobs_dependency_predecessor_id_job_id_key, pgjobs_job_live_pkey
DELETE FROM pgjobs_job_finished AS job
WHERE
    job.id = ANY (
        ARRAY(
            SELECT old.id
            FROM pgjobs_job_finished AS old
            WHERE
                old.id = ANY (%(ids)s::bigint[])
                -- Not IN, here and below: by that the planner may take the index of ends, and read
                -- all of it.
                AND old.status <> 'ready' AND old.status <> 'running'
                AND array_position(%(statuses)s::text[], old.status) IS NOT NULL
                AND (
                    SELECT root.id
                    FROM pgjobs_batch AS batch
                    JOIN pgjobs_batch AS root ON root.id = batch.root_id
                    WHERE batch.id = old.batch_id AND root.tree_completed_at IS NULL
                    LIMIT 1
                ) IS NULL
                AND {old.teaches_nobody}
            ORDER BY old.id
            FOR UPDATE SKIP LOCKED
        )
    )
    AND job.status <> 'ready' AND job.status <> 'running'
RETURNING job.id
