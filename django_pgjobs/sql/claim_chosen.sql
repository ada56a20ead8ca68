-- Claim what was chosen of list_heads.sql: jobs with keys by their ids, and so many of each of the
-- given lanes without keys, as in claim_jobs.sql.
--
-- A job that may not run any more, whose keys are others by now, or that somebody has locked, is
-- left out. Lanes of a queue whose number of running jobs is limited give as many as they are asked
-- for, because these jobs were counted and nobody else claims any (see hold_keyed_claim.sql).
-- Parameters: chosen_ids bigint[], chosen_lanes text[] (of the jobs with keys);
--     lane_backends, lane_queues text[], lane_asyncs boolean[], floor_urgencies integer[],
--     floor_ids bigint[], lane_jobs integer[] (as claim_jobs);
--     passed_over_paths text[]; passed_over bigint[]; worker_id bigint; worker_name text;
--     detailed boolean, detailed_paths text[] (as claim_jobs)
-- Returns: as claim_jobs
-- Locks: the claimed rows, FOR UPDATE SKIP LOCKED
-- Index: pgjobs_job_ready, pgjobs_job_live_pkey
WITH {lane.excluded},
lane AS (
    {lane.unpaused}
),
taken AS MATERIALIZED (
    SELECT locked.id
    FROM lane
    CROSS JOIN LATERAL ({lane.claimable_jobs} LIMIT lane.jobs FOR UPDATE SKIP LOCKED) AS locked
    UNION ALL
    SELECT keyed.id
    FROM (
        SELECT job.id
        FROM pgjobs_job_live AS job
        JOIN unnest(%(chosen_ids)s::bigint[], %(chosen_lanes)s::text[]) AS chosen (id, lane)
            ON chosen.id = job.id AND chosen.lane = job.lane
        WHERE
            job.id = ANY (%(chosen_ids)s::bigint[])
            -- Not "status = 'ready'": that would let the planner walk an index of ready jobs.
            AND job.status IN ('ready', 'running') AND job.status <> 'running'
            AND job.due_at IS NULL AND job.hold IS NULL
            AND job.task_path <> ALL ((SELECT excluded.task_paths FROM excluded)::text[])
        FOR UPDATE OF job SKIP LOCKED
    ) AS keyed
)
{taken.claim}
