-- List schedules that are late, that say an error, or whose last run failed; of the last, among
-- those that ran last.
-- Parameters: late double precision (seconds after which one is late); max_runs integer (last runs
--     that are looked at); max_schedules integer
-- Returns: name; "late", "error" or "failed"; the error; in order of name
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey; the tables of schedules are small
WITH watched AS (
    SELECT schedule.name, schedule.next_at, schedule.error, schedule.last_at, schedule.last_job_id
    FROM pgjobs_schedule AS schedule
    WHERE {schedule.is_in_force}
),
failed AS (
    SELECT recent.name
    FROM (
        SELECT watched.name, watched.last_job_id
        FROM watched
        WHERE watched.last_job_id IS NOT NULL
        ORDER BY watched.last_at DESC
        LIMIT %(max_runs)s::integer
    ) AS recent
    CROSS JOIN LATERAL (
        SELECT job.status
        FROM pgjobs_job AS job
        WHERE job.id = recent.last_job_id
        LIMIT 1
    ) AS last_job
    WHERE last_job.status = 'failed'
),
troubled AS (
    SELECT
        watched.name,
        CASE
            WHEN
                isfinite(watched.next_at)
                AND watched.next_at
                < statement_timestamp() - make_interval(secs => %(late)s::double precision)
                THEN 'late'
            WHEN watched.error <> '' THEN 'error'
            WHEN failed.name IS NOT NULL THEN 'failed'
        END AS trouble,
        watched.error
    FROM watched
    LEFT JOIN failed ON failed.name = watched.name
)
SELECT troubled.name, troubled.trouble, left(troubled.error, 300)
FROM troubled
WHERE troubled.trouble IS NOT NULL
ORDER BY troubled.name
LIMIT %(max_schedules)s::integer
