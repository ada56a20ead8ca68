-- Claim due jobs without keys of the given lanes, best priority first, oldest first, as many of each
-- kind as there is room for and *max_jobs* at most; and the jobs with keys that were chosen of
-- list_heads.sql.
--
-- First the best jobs of all lanes of a kind are looked at without locks, to see how many each lane
-- is to give, unless that is known; then that many are locked per lane. A row that another worker
-- holds is passed over for the next one of its lane, so two workers that claim at once both get full
-- batches. Each lane is read from its floor (see worker/claiming/places.py) and not from its head. A worker
-- whose lease ran out claims nothing. Lanes of a paused queue give nothing, nor do those of a
-- queue whose number of running jobs is limited, unless these were counted before.
-- Parameters: lane_backends, lane_queues text[], lane_asyncs boolean[], floor_urgencies integer[],
--     floor_ids bigint[], lane_jobs integer[] (how many of it at most) (one entry per lane); rooms
--     integer[] (of threads, of the event loop); max_jobs integer;
--     shared boolean (lane_jobs is what each lane is to give);
--     counted boolean (the jobs of limited queues were counted, and nobody else claims any);
--     chosen_ids bigint[], chosen_lanes text[] (of the jobs with keys);
--     passed_over_paths text[] (tasks whose jobs are left alone);
--     passed_over bigint[] (jobs that are left alone);
--     worker_id bigint; worker_name text;
--     detailed boolean, detailed_paths text[] (tasks whose jobs are wanted in full)
-- Returns: id, claim, attempts, max_attempts, lost_count, max_losses, interruptions, timeout, priority, backend, queue_name, task_path,
--     args, kwargs (both text, decoded per job), seconds since the job could first have run,
--     the rest of the row as JSON text or NULL, correlation_id, seconds until the job
--     expires (NULL: it does not), the lane (NULL for a job without keys), what the row says of when
--     it starts as JSON text if it may lack what its task declares, else NULL, batch_id, its
--     schedule and occurrence as JSON text or NULL, is_async; in no order
-- Locks: the claimed rows, FOR UPDATE SKIP LOCKED
-- Index: pgjobs_job_ready, pgjobs_job_live_pkey
WITH {lane.open_lanes},
share AS (
    SELECT
        lane.backend, lane.queue_name, lane.is_async, lane.floor_urgency, lane.floor_id, lane.jobs
    FROM lane
    WHERE %(shared)s::boolean
    UNION ALL
    SELECT
        best.backend, best.queue_name, best.is_async, best.floor_urgency, best.floor_id,
        count(*) AS jobs
    FROM (
        SELECT
            found.backend, found.queue_name, found.is_async, found.floor_urgency, found.floor_id
        FROM unnest('{f,t}'::boolean[], %(rooms)s::integer[]) AS room (is_async, jobs)
        CROSS JOIN LATERAL (
            SELECT
                lane.backend, lane.queue_name, lane.is_async, lane.floor_urgency, lane.floor_id,
                candidate.urgency, candidate.id
            FROM lane
            CROSS JOIN LATERAL ({lane.claimable_jobs} LIMIT lane.jobs) AS candidate
            WHERE lane.is_async = room.is_async AND NOT %(shared)s::boolean
            ORDER BY candidate.urgency, candidate.id
            LIMIT room.jobs
        ) AS found
        ORDER BY found.urgency, found.id
        LIMIT %(max_jobs)s::integer
    ) AS best
    GROUP BY best.backend, best.queue_name, best.is_async, best.floor_urgency, best.floor_id
),
taken AS MATERIALIZED (
    SELECT locked.id
    FROM share
    CROSS JOIN LATERAL ({share.claimable_jobs} LIMIT share.jobs FOR UPDATE SKIP LOCKED) AS locked
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
UPDATE pgjobs_job_live AS job
SET
    status = 'running',
    claim = mod(GREATEST(job.claim, 0), 9000000000000000000) + 1,
    attempts = LEAST(GREATEST(job.attempts, 0), 2147483646) + 1,
    worker_id = %(worker_id)s::bigint,
    worker_ids = CASE
        WHEN array_ndims(job.worker_ids) = 1 AND array_lower(job.worker_ids, 1) = 1
            THEN array_remove(job.worker_ids, NULL)
    END OPERATOR(pg_catalog.||) %(worker_name)s::text,
    started_at = GREATEST(LEAST(job.started_at, statement_timestamp()), 'epoch'),
    last_attempted_at = statement_timestamp(),
    note = ''
WHERE job.id = ANY (ARRAY(SELECT taken.id FROM taken)) AND job.status = 'ready'
RETURNING
    {job.as_claimed_row}
