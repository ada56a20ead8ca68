-- List the jobs of schedules that have not finished.
-- Parameters: schedules text[]
-- Returns: schedule, id of each job, the oldest first
-- Locks: none
-- Index: pgjobs_job_live_schedule
SELECT job.schedule, job.id
FROM pgjobs_job_live AS job
WHERE job.schedule = ANY (%(schedules)s::text[])
ORDER BY job.schedule, job.id
