-- List the newest occurrences of schedules, and how their jobs are.
-- Parameters: schedules text[]; max_runs integer (of each schedule)
-- Returns: schedule, scheduled_for, outcome, note, job_id; the status of the job, NULL without one
--     or if it was deleted; of each schedule the newest first
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey; the unique key of pgjobs_occurrence
SELECT
    given.schedule, newest.scheduled_for, newest.outcome, newest.note, newest.job_id, job.status
FROM pg_catalog.unnest(%(schedules)s::text[]) AS given (schedule)
CROSS JOIN LATERAL (
    SELECT occurrence.scheduled_for, occurrence.outcome, occurrence.note, occurrence.job_id
    FROM pgjobs_occurrence AS occurrence
    WHERE occurrence.schedule = given.schedule
    ORDER BY occurrence.scheduled_for DESC
    LIMIT %(max_runs)s::integer
) AS newest
LEFT JOIN LATERAL (
    SELECT job.status
    FROM pgjobs_job AS job
    WHERE job.id = newest.job_id
    LIMIT 1
) AS job ON true
ORDER BY newest.scheduled_for DESC
