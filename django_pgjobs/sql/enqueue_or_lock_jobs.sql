-- Insert jobs of one task, or lock the waiting ones that have the unique key.
--
-- What is met cannot be claimed before the caller commits, so it will see what the caller
-- wrote; it expires at the later of both times. One that was claimed before, whose key is not free
-- yet, is neither met nor listed.
-- For enqueue_from a QuerySet takes the place of the lines (queries/enqueue.py).
-- Parameters: as enqueue_unique_jobs, without *prolongs*
-- Returns: as enqueue_unique_jobs, but first counts those inserted or met, then those inserted
-- Locks: the rows met, in the order of keys; waits for transactions that hold one
-- Index: pgjobs_job_unique
WITH {line.with_keys},
{line.firsts},
saved AS (
    {fresh.saved_by_key}
    DO UPDATE SET expires_at = {job.expiry_of_both}
    WHERE job.status = 'ready' AND job.claim = 0
    RETURNING job.id, job.unique_key, CASE WHEN %(detailed)s::boolean THEN job END AS job
),
{saved.told}
