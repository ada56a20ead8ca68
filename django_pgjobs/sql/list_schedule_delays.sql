-- Tell of schedules how much later than due their next occurrence is, those that are latest first.
-- Parameters: max_schedules integer
-- Returns: name; seconds, 0 if it is not due yet or never; does it say an error?; did its
--     last job fail?
-- Locks: none
-- Index: pgjobs_job_finished_pkey; the table of schedules is small
SELECT
    schedule.name,
    CASE
        WHEN isfinite(schedule.next_at)
            THEN GREATEST(
                {schedule.next_at.seconds_ago},
                0::double precision
            )
        ELSE 0::double precision
    END AS late,
    schedule.error <> '',
    EXISTS (
        SELECT FROM pgjobs_job_finished AS job
        WHERE job.id = schedule.last_job_id AND job.status = 'failed'
    )
FROM pgjobs_schedule AS schedule
WHERE {schedule.is_in_force}
ORDER BY late DESC, schedule.name
LIMIT %(max_schedules)s::integer
