-- List the results of batches: a page, batch by batch as they are given, in order of id.
-- The batches are not sorted, which would read all: they are met in the order of the array.
-- Parameters: batch_ids bigint[]; behind bigint (of the first: the job where the page before ended,
--     0 at first); max_results integer
-- Returns: batch_id, id, result (text) of each successful job
-- Locks: none
-- Index: pgjobs_job_finished_batch
SELECT batch.id, done.id, done.result::text
FROM pg_catalog.unnest(%(batch_ids)s::bigint[]) WITH ORDINALITY AS batch (id, nth)
CROSS JOIN LATERAL (
    SELECT job.id, job.result
    FROM pgjobs_job_finished AS job
    WHERE
        job.batch_id = batch.id AND job.status = 'successful'
        AND job.id > CASE WHEN batch.nth = 1 THEN %(behind)s::bigint ELSE 0 END
    ORDER BY job.batch_id, job.status, job.id
    LIMIT %(max_results)s::integer
) AS done
LIMIT %(max_results)s::integer
