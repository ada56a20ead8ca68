-- Measure the results of a batch.
-- Parameters: batch_id bigint
-- Returns: how many bytes they take as a list of JSON
-- Locks: none
-- Index: pgjobs_job_finished_batch
SELECT COALESCE(sum(COALESCE(octet_length(job.result::text), 4) + 1), 0)::bigint
FROM pgjobs_job_finished AS job
WHERE job.batch_id = %(batch_id)s::bigint AND job.status = 'successful'
