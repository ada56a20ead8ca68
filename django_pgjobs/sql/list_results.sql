-- List the results of a batch: a page, in order of id.
-- Parameters: batch_id bigint; behind bigint (the job where the page before ended, 0 at first);
--     max_results integer
-- Returns: id, result (text) of each successful job
-- Locks: none
-- Index: pgjobs_job_finished_batch
SELECT job.id, job.result::text
FROM pgjobs_job_finished AS job
WHERE
    job.batch_id = %(batch_id)s::bigint AND job.status = 'successful'
    AND job.id > %(behind)s::bigint
ORDER BY job.batch_id, job.status, job.id
LIMIT %(max_results)s::integer
