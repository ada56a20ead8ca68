-- Insert jobs of one task, except where a live one has the unique key; that one is met.
--
-- One that waits and would expire before a new job lives as long as that, with *prolongs*.
-- A job that was inserted and committed by somebody else while this statement waited for it is
-- not seen by the statement and not listed, nor one that was to live longer and waits no more: ask
-- again.
-- For enqueue_from a QuerySet takes the place of the lines (queries/enqueue.py).
-- Parameters: as enqueue_keyed_jobs; unique_keys text[] of as many entries; unique_until_claimed
--     boolean; batch_id bigint or NULL; max_listed integer; detailed, prolongs boolean
-- Returns: one row: the number of lines; of jobs they came to; of those inserted, twice; up to
--     *max_listed* of those inserted or met, the latter first, as JSON text: a list of [id, unique
--     key, the columns of get_job and the backend, or null]; up to *max_listed* ids of those met, as
--     a JSON text
-- Locks: waits for transactions that just inserted one of the keys, in the order of keys; then the
--     rows that live longer, in that order
-- Index: pgjobs_job_unique
WITH {line.with_keys},
{line.firsts},
saved AS (
    {fresh.saved_by_key}
    DO NOTHING
    RETURNING job.id, job.unique_key, CASE WHEN %(detailed)s::boolean THEN job END AS job
),
twin AS MATERIALIZED (
    SELECT
        twin.id, twin.unique_key, CASE WHEN %(detailed)s::boolean THEN twin END AS job,
        %(prolongs)s::boolean AND twin.status = 'ready'
        AND twin.expires_at < COALESCE({twin.expiry_as_asked}, 'infinity') AS ends_early
    FROM pgjobs_job_live AS twin
    WHERE
        twin.unique_key = ANY (ARRAY(
            SELECT fresh.unique_key FROM fresh EXCEPT SELECT saved.unique_key FROM saved
        ))
        AND twin.task_path = %(task_path)s::text
        AND {twin.occupies_key}
),
early AS MATERIALIZED (
    SELECT job.id
    FROM pgjobs_job_live AS job
    WHERE
        job.id = ANY (ARRAY(SELECT twin.id FROM twin WHERE twin.ends_early))
        AND job.status = 'ready'
    ORDER BY job.unique_key COLLATE "C"
    FOR NO KEY UPDATE
),
prolonged AS (
    UPDATE pgjobs_job_live AS job
    SET expires_at = {job.expiry_of_both}
    WHERE job.id = ANY (ARRAY(SELECT early.id FROM early)) AND job.status = 'ready'
    RETURNING job.id
),
met AS MATERIALIZED (
    SELECT twin.id, twin.unique_key, twin.job
    FROM twin
    WHERE
        twin.ends_early IS NOT TRUE
        OR twin.id IN (SELECT prolonged.id FROM prolonged)
),
known AS (
    SELECT met.id, met.unique_key, met.job FROM met
    UNION ALL
    SELECT saved.id, saved.unique_key, saved.job FROM saved
)
SELECT
    (SELECT count(*) FROM line) AS lines, (SELECT count(*) FROM fresh) AS jobs,
    (SELECT count(*) FROM saved) AS known, (SELECT count(*) FROM saved) AS inserted,
    {known.listed}
