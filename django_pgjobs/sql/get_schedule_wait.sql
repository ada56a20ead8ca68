-- Find out when a schedule is due next, of those that are not due for so long yet, and whether others
-- are that a turn has passed over: somebody has locked them.
-- Parameters: late double precision (seconds); excluded text[] (names to leave alone, and those that
--     were taken); tasks text[] (only schedules of these; NULL: all); now timestamptz (NULL: the
--     server's time)
-- Returns: one row: seconds until the next is due, negative if it was before, NULL without any;
--     whether one is due for so long; the server's time
-- Locks: none
-- Index: pgjobs_schedule_next
SELECT
    (
        SELECT
            date_part('epoch', schedule.next_at) - date_part('epoch', {now.or_servers})
        FROM pgjobs_schedule AS schedule
        WHERE schedule.next_at > {now.latest_due} AND {schedule.is_for_turn}
        ORDER BY schedule.next_at
        LIMIT 1
    ),
    EXISTS (
        SELECT
        FROM pgjobs_schedule AS schedule
        WHERE schedule.next_at <= {now.latest_due} AND {schedule.is_for_turn}
    ),
    statement_timestamp()
