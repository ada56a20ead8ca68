-- Take the schedules that are due, or to be planned, those that are due for longest first.
-- Parameters: late double precision (only those due for so many seconds); excluded text[] (names
--     to leave alone); tasks text[] (only schedules of these; NULL: all); max_schedules integer;
--     now timestamptz (NULL: the server's time)
-- Returns: the columns of a schedule, arguments as text; when it is due, NULL if it is to be
--     planned; from when on it is planned then, NULL if from now on, as with a *now*; the time that
--     counts as now, and the server's
-- Locks: the schedules, SKIP LOCKED
-- Index: pgjobs_schedule_next
SELECT
    schedule.name, schedule.task_path, schedule.args::text, schedule.kwargs::text,
    schedule.cron, schedule.every, schedule.timezone, schedule.skipped_time,
    schedule.repeated_time, schedule.starts_at, schedule.ends_at, schedule.except_dates,
    schedule.max_runs, schedule.jitter, schedule.missed, schedule.grace, schedule.overlap,
    schedule.runs, schedule.last_at, schedule.last_job_id, schedule.error,
    CASE WHEN isfinite(schedule.next_at) THEN schedule.next_at END,
    -- A time that only counts as now has nothing to do with when a row was written.
    CASE WHEN %(now)s::timestamptz IS NULL THEN schedule.plan_from END,
    {now.or_servers}, statement_timestamp()
FROM pgjobs_schedule AS schedule
WHERE schedule.next_at <= {now.latest_due} AND {schedule.is_for_turn}
ORDER BY schedule.next_at
LIMIT %(max_schedules)s::integer
FOR UPDATE SKIP LOCKED
