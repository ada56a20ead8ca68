-- Retire schedules of code that no worker declares any more.
-- Parameters: names text[]
-- Returns: the names of those retired
-- Locks: the schedules, SKIP LOCKED
-- Index: none; the primary key of pgjobs_schedule
UPDATE pgjobs_schedule AS schedule
SET retired_at = statement_timestamp()
WHERE schedule.name = ANY (
    ARRAY(
        SELECT undeclared.name
        FROM pgjobs_schedule AS undeclared
        WHERE
            undeclared.name = ANY (%(names)s::text[])
            AND undeclared.declared IS NOT NULL AND undeclared.retired_at IS NULL
        ORDER BY undeclared.name
        FOR UPDATE SKIP LOCKED
    )
)
RETURNING schedule.name
