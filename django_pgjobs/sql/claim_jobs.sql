-- Claim due jobs: so many of each of the given lanes without keys, best priority first, oldest
-- first.
--
-- A row that another worker holds is passed over for the next one of its lane, so two workers that
-- claim at once both get full batches. Each lane is read from its floor (see
-- worker/claiming/lanes.py) and not from its head. A worker whose lease ran out claims nothing.
-- Lanes of a paused queue give nothing, nor do those of a queue whose number of running jobs is
-- limited: they are counted before claim_chosen.sql.
-- Parameters: lane_backends, lane_queues text[], lane_asyncs boolean[], floor_urgencies integer[],
--     floor_ids bigint[], lane_jobs integer[] (how many it is to give) (one entry per lane);
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
taken AS MATERIALIZED (
    SELECT locked.id
    FROM lane
    CROSS JOIN LATERAL ({lane.claimable_jobs} LIMIT lane.jobs FOR UPDATE SKIP LOCKED) AS locked
)
{taken.claim}
