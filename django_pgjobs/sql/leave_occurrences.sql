-- Take back occurrences that were entered and not reached in their turn: a later one enters them.
-- Parameters: schedules text[]; instants timestamptz[], an element for each
-- Returns: nothing
-- Locks: the deleted rows, which the transaction has entered
-- Index: none; the unique key of pgjobs_occurrence
DELETE FROM pgjobs_occurrence AS occurrence
USING unnest(%(schedules)s::text[], %(instants)s::timestamptz[]) AS given (schedule, instant)
WHERE occurrence.schedule = given.schedule AND occurrence.scheduled_for = given.instant
