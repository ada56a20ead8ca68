-- Retire schedules of code that no worker declares any more.
-- Parameters: names text[]
-- Returns: the names of those retired
-- Locks: the schedules, SKIP LOCKED
-- Index: none; the primary key of pgjobs_schedule
UPDATE pgjobs_schedule AS schedule
SET retired_at = statement_timestamp()
WHERE schedule.name = ANY (
    ARRAY(
        SELECT orphan.name
        FROM pgjobs_schedule AS orphan
        WHERE
            orphan.name = ANY (%(names)s::text[])
            AND orphan.declared IS NOT NULL AND orphan.retired_at IS NULL
        ORDER BY orphan.name
        FOR UPDATE SKIP LOCKED
    )
)
RETURNING schedule.name
