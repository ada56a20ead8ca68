-- Tell how many jobs each of many lanes without keys is to give to a claim, so that it reads few more
-- than it takes. With claim_jobs.sql alone it would read as many of each lane.
--
-- How far to read is found out first: among the best jobs is none behind the last of any so many.
-- So many are all jobs of the lanes with the lowest floors (where there are fewer, these are all),
-- or a few of each lane before the last of these: lanes may be filled one after the other or in turns.
-- Parameters: lane_backends, lane_queues text[], lane_asyncs boolean[], floor_urgencies integer[],
--     floor_ids bigint[], lane_jobs integer[] (how many of it at most) (one entry per lane); rooms,
--     few_jobs integer[] (in all, and of each lane first, of threads and of the event loop);
--     max_jobs integer; counted boolean; passed_over_paths text[]; passed_over bigint[];
--     worker_id bigint (as claim_jobs)
-- Returns: backend, queue_name, is_async, minus the priority and the id of the first job (NULL: there
--     is none), how many jobs; of the lanes that had to be looked at
-- Locks: none
-- Index: pgjobs_job_ready
WITH {lane.open_lanes},
room AS MATERIALIZED (
    SELECT
        room.is_async, room.jobs, room.few_jobs,
        (
            SELECT max(ARRAY[seen.urgency::bigint, seen.id])
            FROM (
                SELECT job.urgency, job.id
                FROM (
                    SELECT
                        lane.backend, lane.queue_name, lane.is_async, lane.floor_urgency,
                        lane.floor_id
                    FROM lane
                    WHERE lane.is_async = room.is_async
                    ORDER BY lane.floor_urgency, lane.floor_id
                ) AS lane
                CROSS JOIN LATERAL ({lane.claimable_jobs} LIMIT room.jobs) AS job
                LIMIT room.jobs
            ) AS seen
        ) AS last
    FROM unnest('{f,t}'::boolean[], %(rooms)s::integer[], %(few_jobs)s::integer[])
        AS room (is_async, jobs, few_jobs)
    WHERE room.jobs > 0
),
cut AS MATERIALIZED (
    SELECT
        room.is_async, room.jobs,
        LEAST(room.last, (
            SELECT max(ARRAY[seen.urgency::bigint, seen.id])
            FROM (
                SELECT job.urgency, job.id
                FROM (
                    SELECT
                        lane.backend, lane.queue_name, lane.is_async, lane.floor_urgency,
                        lane.floor_id
                    FROM lane
                    WHERE
                        lane.is_async = room.is_async
                        AND ARRAY[lane.floor_urgency::bigint, lane.floor_id]
                        OPERATOR(pg_catalog.<=) room.last
                    ORDER BY lane.floor_urgency, lane.floor_id
                ) AS lane
                CROSS JOIN LATERAL ({lane.claimable_jobs} LIMIT room.few_jobs) AS job
                LIMIT room.jobs
            ) AS seen
            HAVING count(*) = room.jobs
        )) AS last
    FROM room
),
-- Of the lanes that begin before the cut: their jobs up to there.
seen AS MATERIALIZED (
    SELECT lane.nth, lane.is_async, job.urgency, job.id
    FROM cut
    JOIN lane ON lane.is_async = cut.is_async
    LEFT JOIN LATERAL (
        SELECT -job.priority AS urgency, job.id
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_claimable}
            AND job.backend = lane.backend AND job.queue_name = lane.queue_name
            AND job.is_async = lane.is_async
            AND (-job.priority, job.id) >= (lane.floor_urgency, lane.floor_id)
            AND (-job.priority, job.id)
            <= (COALESCE(cut.last[1]::integer, 32768), COALESCE(cut.last[2], 0))
        ORDER BY -job.priority, job.id
        LIMIT lane.jobs
    ) AS job ON TRUE
    WHERE cut.last IS NULL OR ARRAY[lane.floor_urgency::bigint, lane.floor_id]
        OPERATOR(pg_catalog.<=) cut.last
),
share AS (
    SELECT best.nth, count(*) AS jobs
    FROM (
        SELECT found.nth
        FROM cut
        CROSS JOIN LATERAL (
            SELECT seen.nth, seen.urgency, seen.id
            FROM seen
            WHERE seen.is_async = cut.is_async AND seen.id IS NOT NULL
            ORDER BY seen.urgency, seen.id
            LIMIT cut.jobs
        ) AS found
        ORDER BY found.urgency, found.id
        LIMIT %(max_jobs)s::integer
    ) AS best
    GROUP BY best.nth
)
SELECT
    lane.backend, lane.queue_name, lane.is_async, first.urgency, first.id,
    COALESCE(share.jobs, 0)
FROM lane
JOIN (
    SELECT seen.nth, min(ARRAY[seen.urgency::bigint, seen.id]) AS first
    FROM seen
    GROUP BY seen.nth
) AS near ON near.nth = lane.nth
LEFT JOIN share ON share.nth = lane.nth
LEFT JOIN LATERAL (
    SELECT near.first[1] AS urgency, near.first[2] AS id
    WHERE near.first[2] IS NOT NULL
    UNION ALL
    ({lane.claimable_jobs} LIMIT CASE WHEN near.first[2] IS NULL THEN 1 ELSE 0 END)
) AS first ON TRUE
