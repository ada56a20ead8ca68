-- Give jobs back to be run again: retry, snooze, release, unknown task. A job that somebody
-- asked to cancel meanwhile ends here instead, and is counted here.
-- Parameters: waits boolean (else rows that are locked are passed over, which takes a third
--     longer); ids, claims bigint[]; delays double precision[] (seconds; NULL or 0: at once);
--     counted_from integer[] (the attempt counts if the job was interrupted that often before:
--     0 always, NULL never; above 0 it was interrupted once more); errors text with one JSON object per line, an empty
--     line for none; notes text[]; ages, durations double precision[] (seconds); begun
--     boolean[] (else the job goes on waiting since it could run); asyncs boolean[] (as their tasks
--     say, whatever the rows said); max_errors integer
-- Returns: id of each job that was given back or cancelled; NULL
-- Locks: the given rows, by primary key
-- Index: pgjobs_job_live_pkey
UPDATE pgjobs_job AS job
SET
    status = CASE WHEN job.cancel_requested_at IS NULL THEN 'ready' ELSE 'cancelled' END,
    finished_at = CASE WHEN job.cancel_requested_at IS NOT NULL THEN statement_timestamp() END,
    claim = mod(GREATEST(job.claim, 0), 9000000000000000000) + 1,
    worker_id = NULL,
    progress = NULL,
    due_at = CASE
        WHEN outcome.delay > 0::double precision THEN statement_timestamp() + make_interval(secs => outcome.delay)
    END,
    ready_at = CASE
        WHEN NOT outcome.begun THEN {job.waiting_since}
        WHEN outcome.delay > 0::double precision THEN statement_timestamp() + make_interval(secs => outcome.delay)
        ELSE statement_timestamp()
    END,
    attempts = CASE
        WHEN job.interruptions >= outcome.counted_from THEN job.attempts
        ELSE GREATEST(job.attempts, 1) - 1
    END,
    interruptions
        = LEAST(GREATEST(job.interruptions, 0), 2147483646) + (COALESCE(outcome.counted_from, 0) > 0)::integer,
    worker_ids = CASE
        WHEN job.interruptions >= outcome.counted_from THEN job.worker_ids
        ELSE job.worker_ids[:cardinality(job.worker_ids) - 1]
    END,
    started_at = CASE
        WHEN job.interruptions >= outcome.counted_from OR job.attempts > 1 THEN job.started_at
    END,
    errors = {job.errors_with_outcome},
    is_async = outcome.is_async,
    -- Why it was given back, which a job that ends was not.
    note = CASE WHEN job.cancel_requested_at IS NULL THEN outcome.note ELSE '' END
FROM unnest(
    %(ids)s::bigint[], %(claims)s::bigint[], %(delays)s::double precision[],
    %(counted_from)s::integer[], string_to_array(%(errors)s::text, E'\n', ''), %(notes)s::text[],
    %(ages)s::double precision[], %(durations)s::double precision[], %(begun)s::boolean[],
    %(asyncs)s::boolean[]
) AS outcome (id, claim, delay, counted_from, error, note, age, duration, begun, is_async)
WHERE
    {job.is_to_finish}
    AND {job.runs}
    AND job.id = outcome.id AND job.claim = outcome.claim
RETURNING job.id, {job.cancel_noted}
