-- List where jobs are that may be claimed: one index probe for each backend, queue and kind, and
-- for each priority of the jobs with keys. Paused queues are left out.
-- Parameters: with_lowest boolean (else 0 for jobs without keys)
-- Returns: backend, queue_name, minus the priority of jobs with keys (NULL: those without), is_async,
--     minus the lowest priority, the boost of the queue, is the number of its running jobs limited?,
--     minus the priority and the id of the first job without keys
-- Locks: none
-- Index: pgjobs_job_ready, pgjobs_job_ready_lanes
WITH RECURSIVE plain AS (
    (
        SELECT job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.id
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NULL
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.id
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM plain
    CROSS JOIN LATERAL (
        SELECT job.backend, job.queue_name, job.is_async, -job.priority AS urgency, job.id
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NULL
            AND (job.backend, job.queue_name, job.is_async)
            > (plain.backend, plain.queue_name, plain.is_async)
        ORDER BY job.backend, job.queue_name, job.is_async, -job.priority, job.id
        LIMIT 1
    ) AS following
),
keyed AS (
    {keyed.keyed_places}
)
SELECT
    lane.backend, lane.queue_name, lane.urgency, lane.is_async,
    COALESCE(lane.urgency, CASE WHEN %(with_lowest)s::boolean THEN (
        SELECT -job.priority
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_ready} AND {job.is_walked} AND job.lane IS NULL
            AND job.backend = lane.backend AND job.queue_name = lane.queue_name
            AND job.is_async = lane.is_async
        ORDER BY -job.priority DESC
        LIMIT 1
    ) END, 0),
    COALESCE(queue.boost, 0), queue.max_running IS NOT NULL, lane.first_urgency, lane.first_id
FROM (
    SELECT
        plain.backend, plain.queue_name, plain.is_async, NULL::integer AS urgency,
        plain.urgency AS first_urgency, plain.id AS first_id
    FROM plain
    UNION ALL
    SELECT keyed.backend, keyed.queue_name, keyed.is_async, keyed.urgency, NULL, NULL FROM keyed
) AS lane
LEFT JOIN pgjobs_queue_settings AS queue ON queue.queue_name = lane.queue_name
WHERE NOT EXISTS (
    SELECT FROM pgjobs_pause AS pause
    WHERE pause.kind = 'queue' AND pause.name = lane.queue_name AND {pause.holds}
)
