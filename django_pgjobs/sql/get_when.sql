-- Find out when a schedule is due.
-- Parameters: name text
-- Returns: cron, every, timezone; no row if there is no such schedule
-- Locks: none
-- Index: none; the primary key of pgjobs_schedule
SELECT schedule.cron, schedule.every, schedule.timezone
FROM pgjobs_schedule AS schedule
WHERE schedule.name = %(name)s::text
