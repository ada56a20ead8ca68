-- Tell how many jobs each of many lanes without keys is to give to a claim, so that it reads few more
-- than it takes. With claim_jobs.sql alone it would read as many of each lane.
--
-- How far to read is found out first: among the best jobs is none behind the last of any so many.
-- So many are all jobs of the lanes with the lowest floors, or a few of each lane before the last
-- of these: lanes may be filled one after the other or in turns.
-- Parameters: lane_backends, lane_queues text[], lane_asyncs boolean[], floor_urgencies integer[],
--     floor_ids bigint[], lane_jobs integer[] (how many of it at most) (one entry per lane); rooms,
--     few_jobs integer[] (in all, and of each lane first, of threads and of the event loop);
--     max_jobs integer; counted boolean; unknown_paths text[]; passed_over bigint[];
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
            HAVING count(*) = room.jobs
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
                        AND ARRAY[lane.floor_urgency::bigint, lane.floor_id] <= room.last
                    ORDER BY lane.floor_urgency, lane.floor_id
                ) AS lane
                CROSS JOIN LATERAL ({lane.claimable_jobs} LIMIT room.few_jobs) AS job
                LIMIT room.jobs
            ) AS seen
            HAVING count(*) = room.jobs
        )) AS last
    FROM room
),
head AS MATERIALIZED (
    SELECT
        lane.backend, lane.queue_name, lane.is_async, lane.jobs, first.urgency, first.id,
        ARRAY[first.urgency::bigint, first.id] <= cut.last OR cut.last IS NULL AS is_near
    FROM cut
    JOIN lane ON lane.is_async = cut.is_async
    LEFT JOIN LATERAL ({lane.claimable_jobs} LIMIT 1) AS first ON TRUE
    WHERE cut.last IS NULL OR ARRAY[lane.floor_urgency::bigint, lane.floor_id] <= cut.last
),
share AS (
    SELECT best.backend, best.queue_name, best.is_async, count(*) AS jobs
    FROM (
        SELECT found.backend, found.queue_name, found.is_async
        FROM cut
        CROSS JOIN LATERAL (
            SELECT head.backend, head.queue_name, head.is_async, candidate.urgency, candidate.id
            FROM head
            CROSS JOIN LATERAL (
                SELECT -job.priority AS urgency, job.id
                FROM pgjobs_job_live AS job
                WHERE
                    {job.is_claimable}
                    AND job.backend = head.backend AND job.queue_name = head.queue_name
                    AND job.is_async = head.is_async
                    AND (-job.priority, job.id) >= (head.urgency, head.id)
                    AND (-job.priority, job.id)
                    <= (COALESCE(cut.last[1]::integer, 32768), COALESCE(cut.last[2], 0))
                ORDER BY -job.priority, job.id
                LIMIT head.jobs
            ) AS candidate
            WHERE head.is_async = cut.is_async AND head.is_near
            ORDER BY candidate.urgency, candidate.id
            LIMIT cut.jobs
        ) AS found
        ORDER BY found.urgency, found.id
        LIMIT %(max_jobs)s::integer
    ) AS best
    GROUP BY best.backend, best.queue_name, best.is_async
)
SELECT
    head.backend, head.queue_name, head.is_async, head.urgency, head.id, COALESCE(share.jobs, 0)
FROM head
LEFT JOIN share
    ON share.backend = head.backend AND share.queue_name = head.queue_name
    AND share.is_async = head.is_async
