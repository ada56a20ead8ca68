-- Give jobs of batches back to be run again. For each that somebody asked to cancel meanwhile its
-- batch has something to count.
-- Parameters: as give_back_jobs
-- Returns: id of each job that was given back or cancelled
-- Locks: the given rows, by primary key
-- Index: pgjobs_job_live_pkey
WITH returned AS (
    {head of give_back_jobs}
    RETURNING job.id, job.batch_id, job.status, {job.cancel_noted} AS noted
),
noted AS (
    {returned.changes_of_batches}
)
SELECT returned.id FROM returned
