-- Enter occurrences of schedules; one that is there already stays as it is.
-- Parameters: schedules text[]; instants timestamptz[]; outcomes, notes text[], an element for
--     each; in the order of schedule and instant
-- Returns: schedule and instant of each that was entered now
-- Locks: the keys of the new rows, in the order given; waits for a transaction that enters one
-- Index: none; the unique key of pgjobs_occurrence
INSERT INTO pgjobs_occurrence (schedule, scheduled_for, outcome, note)
SELECT given.schedule, given.instant, given.outcome, given.note
FROM unnest(
    %(schedules)s::text[], %(instants)s::timestamptz[], %(outcomes)s::text[], %(notes)s::text[]
) AS given (schedule, instant, outcome, note)
ON CONFLICT (schedule, scheduled_for) DO NOTHING
RETURNING schedule, scheduled_for
