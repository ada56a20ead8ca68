-- Tell how many jobs each of many lanes without keys is to give to a claim, so that it reads few more
-- than it takes. With claim_jobs.sql alone it would read as many of each.
--
-- How far the lanes are to be read is found out first: among the best jobs is none behind the last
-- of any so many. So many are a few of each lane, or all of the lanes that begin first; both are
-- tried, because lanes may be filled in turns or one after the other.
-- Parameters: lane_backends, lane_queues text[], lane_asyncs boolean[], floor_urgencies integer[],
--     floor_ids bigint[], lane_jobs integer[] (how many of it at most) (one entry per lane); rooms,
--     few_jobs integer[] (in all, and of each lane first, of threads and of the event loop);
--     max_jobs integer; counted boolean; unknown_paths text[]; passed_over bigint[];
--     worker_id bigint (as claim_jobs)
-- Returns: backend, queue_name, is_async, minus the priority and the id of the first job, how many
--     (0: there are none)
-- Locks: none
-- Index: pgjobs_job_ready
WITH {lane.open_lanes},
head AS MATERIALIZED (
    SELECT
        lane.backend, lane.queue_name, lane.is_async, lane.jobs, first.urgency, first.id
    FROM lane
    CROSS JOIN LATERAL (
        SELECT -job.priority AS urgency, job.id
        FROM pgjobs_job_live AS job
        WHERE
            {job.is_claimable}
            AND job.backend = lane.backend AND job.queue_name = lane.queue_name
            AND job.is_async = lane.is_async
            AND (-job.priority, job.id) >= (lane.floor_urgency, lane.floor_id)
        ORDER BY -job.priority, job.id
        LIMIT 1
    ) AS first
),
-- The last of so many jobs, NULL if there are fewer.
cut AS MATERIALIZED (
    SELECT
        room.is_async, room.jobs,
        (
            SELECT min(tried.last)
            FROM unnest(ARRAY[room.few_jobs, room.jobs]) AS depth (jobs)
            CROSS JOIN LATERAL (
                SELECT max(ARRAY[seen.urgency::bigint, seen.id]) AS last
                FROM (
                    SELECT found.urgency, found.id
                    FROM (
                        SELECT
                            head.backend, head.queue_name, head.is_async, head.urgency, head.id
                        FROM head
                        WHERE head.is_async = room.is_async
                        ORDER BY head.urgency, head.id
                    ) AS first
                    CROSS JOIN LATERAL (
                        SELECT first.urgency, first.id
                        UNION ALL
                        (
                            SELECT -job.priority, job.id
                            FROM pgjobs_job_live AS job
                            WHERE
                                {job.is_claimable}
                                AND job.backend = first.backend
                                AND job.queue_name = first.queue_name
                                AND job.is_async = first.is_async
                                AND (-job.priority, job.id) > (first.urgency, first.id)
                            ORDER BY -job.priority, job.id
                            LIMIT depth.jobs - 1
                        )
                    ) AS found
                    LIMIT room.jobs
                ) AS seen
                HAVING count(*) = room.jobs
            ) AS tried
        ) AS last
    FROM unnest('{f,t}'::boolean[], %(rooms)s::integer[], %(few_jobs)s::integer[])
        AS room (is_async, jobs, few_jobs)
    WHERE room.jobs > 0
)
SELECT
    best.backend, best.queue_name, best.is_async, best.first_urgency, best.first_id, count(*)
FROM (
    SELECT
        found.backend, found.queue_name, found.is_async, found.first_urgency, found.first_id
    FROM cut
    CROSS JOIN LATERAL (
        SELECT
            head.backend, head.queue_name, head.is_async, head.urgency AS first_urgency,
            head.id AS first_id, candidate.urgency, candidate.id
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
        WHERE
            head.is_async = cut.is_async
            AND (cut.last IS NULL OR ARRAY[head.urgency::bigint, head.id] <= cut.last)
        ORDER BY candidate.urgency, candidate.id
        LIMIT cut.jobs
    ) AS found
    ORDER BY found.urgency, found.id
    LIMIT %(max_jobs)s::integer
) AS best
GROUP BY best.backend, best.queue_name, best.is_async, best.first_urgency, best.first_id
UNION ALL
SELECT lane.backend, lane.queue_name, lane.is_async, 0, 0, 0
FROM lane
WHERE (lane.backend, lane.queue_name, lane.is_async) NOT IN (
    SELECT head.backend, head.queue_name, head.is_async FROM head
)
