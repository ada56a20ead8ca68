-- Finish attempts that failed for good or were cancelled, if they still own their jobs. Who is to
-- be told of a failure is enqueued with it.
-- Parameters: waits boolean (else rows that are locked are passed over, which takes a third
--     longer); ids, claims bigint[]; statuses text[] ('failed' or 'cancelled'); errors text with
--     one JSON object per line, an empty line for none; notes text[]; ages, durations double
--     precision[] (seconds); counted boolean[] (else the attempt was not begun);
--     max_errors integer (beyond it the second oldest entry goes)
-- Returns: id of each job that was finished
-- Locks: the finished rows, by primary key
-- Index: pgjobs_job_live_pkey
WITH ended AS (
    UPDATE pgjobs_job AS job
    SET
        status = outcome.status,
        errors = {job.errors_with_outcome},
        note = outcome.note,
        attempts = CASE
            WHEN outcome.counted THEN job.attempts
            ELSE GREATEST(job.attempts, 1) - 1
        END,
        worker_ids = CASE
            WHEN outcome.counted THEN job.worker_ids
            ELSE job.worker_ids[:cardinality(job.worker_ids) - 1]
        END,
        finished_at = statement_timestamp() - make_interval(secs => outcome.age),
        last_attempted_at = CASE
            WHEN outcome.counted OR job.attempts > 1
                THEN statement_timestamp() - make_interval(secs => outcome.age + outcome.duration)
        END,
        started_at = CASE
            WHEN job.attempts > 1 THEN job.started_at
            WHEN outcome.counted
                THEN statement_timestamp() - make_interval(secs => outcome.age + outcome.duration)
        END
    FROM unnest(
        %(ids)s::bigint[], %(claims)s::bigint[], %(statuses)s::text[],
        string_to_array(%(errors)s::text, E'\n', ''), %(notes)s::text[],
        %(ages)s::double precision[], %(durations)s::double precision[], %(counted)s::boolean[]
    ) AS outcome (id, claim, status, error, note, age, duration, counted)
    WHERE
        {job.is_to_finish}
        AND {job.runs}
        AND job.id = outcome.id AND job.claim = outcome.claim
    RETURNING job.id, job.status, job.on_failure, job.correlation_id, job.errors
),
told AS (
    {ended.follow_ups}
)
SELECT ended.id FROM ended
