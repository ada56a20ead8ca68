-- Tell of schedules how much later than due their next occurrence is: first of those that have some
-- trouble, the latest first.
-- Parameters: max_schedules integer; late double precision (so many seconds are trouble)
-- Returns: name; seconds, 0 if it is not due yet or never; does it say an error?; did the
--     newest of its jobs that have finished fail?
-- Locks: none
-- Index: pgjobs_job_finished_pkey, pgjobs_job_finished_schedule; the table of schedules is small
SELECT told.name, told.late, told.has_error, told.has_failed
FROM (
    SELECT
        schedule.name,
        GREATEST({schedule.seconds_due}, 0::double precision) AS late,
        schedule.error <> '' AS has_error,
        -- The next one may be enqueued long before it has failed for good, each time.
        COALESCE(
            (SELECT job.status FROM pgjobs_job_finished AS job WHERE job.id = schedule.last_job_id),
            (
                SELECT job.status
                FROM pgjobs_job_finished AS job
                WHERE job.schedule = schedule.name
                ORDER BY job.id DESC
                LIMIT 1
            ),
            ''
        ) = 'failed' AS has_failed
    FROM pgjobs_schedule AS schedule
    WHERE {schedule.is_in_force}
) AS told
ORDER BY
    told.has_error OR told.has_failed OR told.late >= %(late)s::double precision DESC,
    told.late DESC, told.name
LIMIT %(max_schedules)s::integer
