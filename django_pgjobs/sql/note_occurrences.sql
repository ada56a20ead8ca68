-- Note what became of occurrences that this transaction has entered.
-- Parameters: schedules text[]; instants timestamptz[]; outcomes, notes text[]; job_ids bigint[]
--     (NULL: no job), an element for each
-- Returns: nothing
-- Locks: the rows, which are the transaction's own
-- Index: none; the unique key of pgjobs_occurrence
UPDATE pgjobs_occurrence AS occurrence
SET outcome = given.outcome, note = given.note, job_id = given.job_id
FROM unnest(
    %(schedules)s::text[], %(instants)s::timestamptz[], %(outcomes)s::text[], %(notes)s::text[],
    %(job_ids)s::bigint[]
) AS given (schedule, instant, outcome, note, job_id)
WHERE occurrence.schedule = given.schedule AND occurrence.scheduled_for = given.instant
