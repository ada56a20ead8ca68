-- Count what batches wait for again; note what is to be corrected.
-- Parameters: ids bigint[]
-- Returns: batch_id of each that was wrong
-- Locks: the batches, SKIP LOCKED
-- Index: none, pgjobs_recount_v1 uses pgjobs_job_finished_batch
SELECT recounted.batch_id
FROM pgjobs_recount_v1(%(ids)s::bigint[]) AS recounted (batch_id)
