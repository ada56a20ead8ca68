-- Delete what became of occurrences longer ago than *retention*; one that was skipped ahead counts
-- until its time is as long ago.
-- Parameters: retention double precision (seconds); max_occurrences integer
-- Returns: nothing
-- Locks: the deleted rows, SKIP LOCKED
-- Index: pgjobs_occurrence_created
DELETE FROM pgjobs_occurrence AS occurrence
WHERE occurrence.id = ANY (
    ARRAY(
        SELECT old.id
        FROM pgjobs_occurrence AS old
        WHERE
            -- A subquery hides the value from statistics of other rows, all of them old. The
            -- greater of both: of the other one the planner might read all of an index.
            old.created_at < (SELECT
                statement_timestamp() - make_interval(secs => %(retention)s::double precision)
            )
            AND GREATEST(old.created_at, old.scheduled_for)
            < statement_timestamp() - make_interval(secs => %(retention)s::double precision)
        ORDER BY old.created_at
        LIMIT %(max_occurrences)s::integer
        FOR UPDATE SKIP LOCKED
    )
)
