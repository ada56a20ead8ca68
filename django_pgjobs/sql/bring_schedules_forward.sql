-- Let schedules be due earlier than they were planned.
-- Parameters: names text[]; planned, earlier timestamptz[], an element for each (when it was due
--     next, and is from now on)
-- Returns: the names of those that were still planned so
-- Locks: the schedules, SKIP LOCKED
-- Index: none; the primary key of pgjobs_schedule
UPDATE pgjobs_schedule AS schedule
SET next_at = given.earlier
FROM unnest(
    %(names)s::text[], %(planned)s::timestamptz[], %(earlier)s::timestamptz[]
) AS given (name, planned, earlier)
WHERE
    schedule.name = given.name AND schedule.next_at = given.planned
    AND schedule.name = ANY (
        ARRAY(
            SELECT free.name
            FROM pgjobs_schedule AS free
            WHERE free.name = ANY (%(names)s::text[])
            ORDER BY free.name
            FOR UPDATE SKIP LOCKED
        )
    )
RETURNING schedule.name
