-- Keep a batch from being sealed until the transaction ends, if it takes jobs.
-- Parameters: batch_id bigint; job_id, claim bigint (of a running job of the batch, or NULL)
-- Returns: id; no row if it takes nothing any more, or there is no such batch
-- Locks: the job that asks, then the batch FOR KEY SHARE: waits for who seals it
-- Index: pgjobs_batch_pkey, pgjobs_job_live_pkey
WITH {job_id.asking}
{batch_id.taking}
