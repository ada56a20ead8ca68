-- List schedules that are not due yet, in order of name.
-- Parameters: after text (only those after this name); tasks text[] (only schedules of these);
--     max_schedules integer
-- Returns: the columns of a schedule as `take_due_schedules` does, the time from which it would be
--     planned anew always NULL
-- Locks: none
-- Index: none; the primary key of pgjobs_schedule
SELECT
    schedule.name, schedule.task_path, schedule.args::text, schedule.kwargs::text,
    schedule.cron, schedule.every, schedule.timezone, schedule.skipped_time,
    schedule.repeated_time, schedule.starts_at, schedule.ends_at, schedule.except_dates,
    schedule.max_runs, schedule.jitter, schedule.missed, schedule.grace, schedule.overlap,
    schedule.runs, schedule.last_at, schedule.last_job_id, schedule.error,
    schedule.next_at, NULL::timestamptz, statement_timestamp(), statement_timestamp()
FROM pgjobs_schedule AS schedule
WHERE
    schedule.name > %(after)s::text
    AND schedule.next_at > statement_timestamp()
    AND {schedule.is_in_force}
    AND schedule.task_path = ANY (%(tasks)s::text[])
ORDER BY schedule.name
LIMIT %(max_schedules)s::integer
