-- Finish attempts that returned, if they still own their jobs.
-- Parameters: waits boolean (else rows that are locked are passed over, which takes a third
--     longer); ids, claims bigint[]; results text with one JSON text per line, an empty line for
--     None; ages double precision[] (seconds since the attempt ended); durations double
--     precision[] (seconds it ran); all of the same length
-- Returns: id of each job that was finished; the others belong to another attempt by now
-- Locks: the finished rows, by primary key; waits only for a cancel of the same row
-- Index: pgjobs_job_live_pkey
UPDATE pgjobs_job AS job
SET
    status = 'successful',
    result = outcome.result::json,
    note = '',
    finished_at = statement_timestamp() - make_interval(secs => outcome.age),
    last_attempted_at
        = statement_timestamp() - make_interval(secs => outcome.age + outcome.duration),
    started_at = CASE
        WHEN job.attempts > 1 THEN job.started_at
        ELSE statement_timestamp() - make_interval(secs => outcome.age + outcome.duration)
    END
FROM unnest(
    %(ids)s::bigint[], %(claims)s::bigint[], string_to_array(%(results)s::text, E'\n', ''),
    %(ages)s::double precision[], %(durations)s::double precision[]
) AS outcome (id, claim, result, age, duration)
WHERE
    {job.is_to_finish}
    AND {job.runs}
    AND job.id = outcome.id AND job.claim = outcome.claim
RETURNING job.id
