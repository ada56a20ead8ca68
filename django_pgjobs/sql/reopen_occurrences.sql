-- Let occurrences that were missed, or whose enqueue failed, have a job after all.
-- Parameters: schedule text; instants timestamptz[]
-- Returns: schedule and instant of each of those; they say now what a new one says
-- Locks: the rows; the transaction holds their schedule
-- Index: none; the unique key of pgjobs_occurrence
UPDATE pgjobs_occurrence AS occurrence
SET outcome = 'enqueued', note = ''
WHERE
    occurrence.schedule = %(schedule)s::text
    AND occurrence.scheduled_for = ANY (%(instants)s::timestamptz[])
    AND occurrence.outcome IN ('missed', 'failed') AND occurrence.job_id IS NULL
RETURNING occurrence.schedule, occurrence.scheduled_for
