-- Find out when a schedule is due next, of those that are not due for so long yet.
-- Parameters: late double precision (seconds); excluded text[] (names to leave alone); now
--     timestamptz (NULL: the server's time)
-- Returns: one row: seconds until it is due, negative if it was before; NULL without any
-- Locks: none
-- Index: pgjobs_schedule_next
SELECT (
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
    ORDER BY schedule.next_at
    LIMIT 1
)
