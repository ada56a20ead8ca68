-- Tell what there is now: the newest job, and the time.
-- Parameters: none
-- Returns: the highest id (0 without jobs), the database's time
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey
SELECT COALESCE((SELECT max(job.id) FROM pgjobs_job AS job), 0), statement_timestamp()
