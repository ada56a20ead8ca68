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
    rate_limit_keys = job.rate_limit_keys,
    status = 'successful',
    result = outcome.result::json,
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
    -- Not "status = 'running'": that would let the planner walk the index of running jobs,
    -- which is full of dead entries, instead of the primary key.
    job.id = ANY (CASE WHEN %(waits)s::boolean THEN %(ids)s::bigint[] ELSE ARRAY(
        SELECT free.id
        FROM pgjobs_job_live AS free
        WHERE
            free.id = ANY (%(ids)s::bigint[])
            AND free.status IN ('ready', 'running') AND free.status <> 'ready'
        ORDER BY free.id
        FOR UPDATE SKIP LOCKED
    ) END)
    AND job.status IN ('ready', 'running') AND job.status <> 'ready'
    AND job.id = outcome.id AND job.claim = outcome.claim
RETURNING job.id
