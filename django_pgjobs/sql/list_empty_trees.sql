-- List those of some trees that are complete, and of which no job is left: they stay so, because
-- nothing can be added to them or run again.
-- Parameters: roots bigint[]
-- Returns: id
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_root, pgjobs_job_live_batch, pgjobs_job_finished_batch,
--     pgjobs_job_running
WITH {root.noted},
busy AS MATERIALIZED (
    SELECT DISTINCT job.batch_id
    FROM pgjobs_job_live AS job
    WHERE job.status = 'running' AND {job.is_of_workers} AND job.batch_id IS NOT NULL
)
SELECT root.id
FROM pgjobs_batch AS root
WHERE
    root.id = ANY (%(roots)s::bigint[]) AND root.tree_completed_at IS NOT NULL
    AND root.id NOT IN (SELECT noted.root_id FROM noted)
    AND (
        SELECT batch.id
        FROM pgjobs_batch AS batch
        WHERE
            batch.root_id = root.id
            AND (
                batch.id IN (SELECT busy.batch_id FROM busy)
                OR (
                    SELECT old.id
                    FROM pgjobs_job_finished AS old
                    WHERE old.batch_id = batch.id AND {old.is_of_batches}
                    LIMIT 1
                ) IS NOT NULL
                OR (
                    SELECT waiting.id
                    FROM pgjobs_job_live AS waiting
                    WHERE
                        waiting.batch_id = batch.id AND waiting.status = 'ready'
                        AND {waiting.is_of_batches}
                    LIMIT 1
                ) IS NOT NULL
            )
        LIMIT 1
    ) IS NULL
