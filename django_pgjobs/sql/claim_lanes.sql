-- Claim the best due jobs of several lanes without keys, best priority first, oldest first, as many
-- of each kind as there is room for and *max_jobs* at most; and tell where each lane goes on.
--
-- First the lanes are looked at, to see how many each is to give; then that many are locked per lane,
-- as in claim_jobs.sql. Usually the look takes no locks. With *skips_locked* it does: then it finds
-- those that nobody else has locked, and a lane of which others have locked many takes no share of
-- the batch that it cannot fill. So that very many deep lanes are not all read deep, the
-- caller says how much to look at of each, less of those that begin later. Where there may be more
-- behind that, nothing is known of what is better, so nothing behind such a place is taken.
-- Parameters: lane_backends, lane_queues text[], lane_asyncs boolean[], floor_urgencies integer[],
--     floor_ids bigint[], lane_jobs integer[] (how many of it to look at) (one entry per lane);
--     rooms integer[], end_urgencies integer[], end_ids bigint[] (how many to take, and up to where,
--     of threads, of the event loop);
--     max_jobs integer; skips_locked boolean;
--     passed_over_paths text[]; passed_over bigint[]; worker_id bigint; worker_name text;
--     detailed boolean, detailed_paths text[] (as claim_jobs)
-- Returns: as claim_jobs; and one row without an id, whose detail is JSON: how many jobs were to be
--     claimed, some of which others have locked; and the number of each lane that may have jobs
--     behind what it is to give, counted from 1, with minus the priority and the id of the first of
--     these; of the last it gives, if it gives all that was looked at (null for none)
-- Locks: the claimed rows, FOR UPDATE SKIP LOCKED; with skips_locked all that are looked at
-- Index: pgjobs_job_ready, pgjobs_job_live_pkey
WITH {lane.open_lanes},
candidate AS MATERIALIZED (
    SELECT lane.nth, lane.is_async, lane.jobs AS looked_at, job.urgency, job.id, job.place
    FROM lane
    CROSS JOIN LATERAL (
        SELECT
            best.urgency, best.id, row_number() OVER (ORDER BY best.urgency, best.id) AS place
        FROM (
            SELECT seen.urgency, seen.id
            FROM ({lane.claimable_jobs} LIMIT lane.jobs) AS seen
            WHERE NOT %(skips_locked)s::boolean
            UNION ALL
            SELECT locked.urgency, locked.id
            FROM ({lane.claimable_jobs} LIMIT lane.jobs FOR UPDATE SKIP LOCKED) AS locked
            WHERE %(skips_locked)s::boolean
        ) AS best
    ) AS job
),
room AS (
    SELECT
        room.is_async, room.jobs,
        LEAST(ARRAY[room.end_urgency::bigint, room.end_id], (
            SELECT min(ARRAY[candidate.urgency::bigint, candidate.id])
            FROM candidate
            WHERE
                candidate.is_async = room.is_async AND candidate.place = candidate.looked_at
        )) AS last
    FROM unnest(
        '{f,t}'::boolean[], %(rooms)s::integer[], %(end_urgencies)s::integer[],
        %(end_ids)s::bigint[]
    ) AS room (is_async, jobs, end_urgency, end_id)
),
share AS MATERIALIZED (
    SELECT best.nth, count(*) AS jobs
    FROM (
        SELECT found.nth
        FROM (
            SELECT
                room.is_async, room.jobs,
                -- If there is not room for both kinds, what is better of either goes first.
                CASE
                    WHEN %(max_jobs)s::integer < sum(room.jobs) OVER ()
                        THEN min(room.last) OVER ()
                    ELSE room.last
                END AS last
            FROM room
        ) AS room
        CROSS JOIN LATERAL (
            SELECT candidate.nth, candidate.urgency, candidate.id
            FROM candidate
            WHERE
                candidate.is_async = room.is_async
                AND ARRAY[candidate.urgency::bigint, candidate.id]
                OPERATOR(pg_catalog.<=) room.last
            ORDER BY candidate.urgency, candidate.id
            LIMIT room.jobs
        ) AS found
        ORDER BY found.urgency, found.id
        LIMIT %(max_jobs)s::integer
    ) AS best
    GROUP BY best.nth
),
taken AS MATERIALIZED (
    SELECT locked.id
    FROM share
    JOIN lane ON lane.nth = share.nth
    CROSS JOIN LATERAL ({lane.claimable_jobs} LIMIT share.jobs FOR UPDATE SKIP LOCKED) AS locked
),
claimed AS (
    {taken.claim}
)
SELECT claimed.* FROM claimed
UNION ALL
SELECT
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    json_build_array(
        (SELECT sum(share.jobs) FROM share),
        json_agg(json_build_array(goes_on.nth, goes_on.urgency, goes_on.id))
    )::text,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM (
    SELECT candidate.nth, candidate.urgency, candidate.id
    FROM candidate
    LEFT JOIN share ON share.nth = candidate.nth
    WHERE candidate.place = LEAST(COALESCE(share.jobs, 0) + 1, candidate.looked_at)
) AS goes_on
