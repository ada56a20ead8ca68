-- Store what running attempts report of their progress, if they still own their jobs, with the time
-- of the change and the longest pause between two changes.
-- Parameters: ids, claims bigint[]; pauses double precision[] (seconds); progress text with one JSON
--     object per line
-- Returns: id of each job whose progress was stored
-- Locks: the rows, by primary key, SKIP LOCKED
-- Index: pgjobs_job_live_pkey
UPDATE pgjobs_job_live AS job
SET
    progress = (
        report.progress::jsonb OPERATOR(pg_catalog.||) jsonb_build_object(
            'changed_at',
            to_char(
                statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"'
            ),
            'longest_pause', report.pause
        )
    )::json
FROM unnest(
    %(ids)s::bigint[], %(claims)s::bigint[], %(pauses)s::double precision[],
    string_to_array(%(progress)s::text, E'\n')
) AS report (id, claim, pause, progress)
WHERE
    job.id = ANY ({ids.free})
    AND {job.runs}
    AND job.id = report.id AND job.claim = report.claim
RETURNING job.id
