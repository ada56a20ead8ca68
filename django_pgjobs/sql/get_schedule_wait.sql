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
            date_part('epoch', schedule.next_at)
            - date_part('epoch', COALESCE(%(now)s::timestamptz, statement_timestamp()))
        FROM pgjobs_schedule AS schedule
        WHERE
            schedule.next_at
            > COALESCE(%(now)s::timestamptz, statement_timestamp())
                - make_interval(secs => %(late)s::double precision)
            AND schedule.paused_at IS NULL AND schedule.retired_at IS NULL
            AND schedule.name <> ALL (%(excluded)s::text[])
            AND (%(tasks)s::text[] IS NULL OR schedule.task_path = ANY (%(tasks)s::text[]))
        ORDER BY schedule.next_at
        LIMIT 1
    ),
    EXISTS (
        SELECT
        FROM pgjobs_schedule AS schedule
        WHERE
            schedule.next_at
            <= COALESCE(%(now)s::timestamptz, statement_timestamp())
                - make_interval(secs => %(late)s::double precision)
            AND schedule.paused_at IS NULL AND schedule.retired_at IS NULL
            AND schedule.name <> ALL (%(excluded)s::text[])
            AND (%(tasks)s::text[] IS NULL OR schedule.task_path = ANY (%(tasks)s::text[]))
    ),
    statement_timestamp()
