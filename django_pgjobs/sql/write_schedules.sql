-- Write when schedules are due next, and what their last run was.
-- Parameters: names text[]; next_ats, last_ats timestamptz[] (NULL: never); plan_froms timestamptz[]
--     (of those that are broken); last_job_ids bigint[]; runs integer[]; errors text[], an element
--     for each
-- Returns: nothing
-- Locks: the schedules, which the transaction holds already
-- Index: none; the primary key of pgjobs_schedule
UPDATE pgjobs_schedule AS schedule
SET
    next_at = given.next_at,
    plan_from = given.plan_from,
    last_at = given.last_at,
    last_job_id = given.last_job_id,
    runs = given.runs,
    error = given.error
FROM unnest(
    %(names)s::text[], %(next_ats)s::timestamptz[], %(plan_froms)s::timestamptz[],
    %(last_ats)s::timestamptz[], %(last_job_ids)s::bigint[], %(runs)s::integer[],
    %(errors)s::text[]
) AS given (name, next_at, plan_from, last_at, last_job_id, runs, error)
WHERE schedule.name = given.name
