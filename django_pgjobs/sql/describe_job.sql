-- Read what the page of one job shows beside the job itself: its neighbours, and what became of
-- the newest jobs of its task.
--
-- No index finds the finished jobs of a task (it would cost every finish), so the newest
-- *max_looked_at* are looked through.
-- Parameters: id, worker_id bigint; task_path text; unique_key, concurrency_key text or NULL;
--     max_neighbours, max_runs, max_looked_at integer
-- Returns: one row: as JSON texts lists of [id, status or null, task_path] of jobs that it waits
--     for, and of jobs that wait for it, and of [id, status, seconds of the newest attempt] of
--     finished jobs of its task, newest first; id of another live job with its unique key or
--     NULL; pattern and number of the row that limits its concurrency key, or NULL; name of its
--     worker or NULL
-- Locks: none
-- Index: pgjobs_dependency_job, pgjobs_dependency_predecessor_id_job_id_key,
--     pgjobs_job_live_pkey, pgjobs_job_finished_pkey, pgjobs_job_unique
WITH key_pattern AS MATERIALIZED ({pgjobs_concurrency_limit.patterns})
SELECT
    (
        SELECT json_agg(json_build_array(edge.id, job.status, job.task_path) ORDER BY edge.id)
        FROM (
            SELECT dependency.predecessor_id AS id
            FROM pgjobs_dependency AS dependency
            -- Here and below in an order that one index alone begins with.
            WHERE dependency.job_id >= %(id)s::bigint AND dependency.job_id <= %(id)s::bigint
            ORDER BY dependency.job_id, dependency.predecessor_id
            LIMIT %(max_neighbours)s::integer
        ) AS edge
        LEFT JOIN LATERAL (
            SELECT job.status, job.task_path FROM pgjobs_job AS job WHERE job.id = edge.id LIMIT 1
        ) AS job ON TRUE
    )::text,
    (
        SELECT json_agg(json_build_array(edge.id, job.status, job.task_path) ORDER BY edge.id)
        FROM (
            SELECT dependency.job_id AS id
            FROM pgjobs_dependency AS dependency
            WHERE
                dependency.predecessor_id >= %(id)s::bigint
                AND dependency.predecessor_id <= %(id)s::bigint
            ORDER BY dependency.predecessor_id, dependency.job_id
            LIMIT %(max_neighbours)s::integer
        ) AS edge
        LEFT JOIN LATERAL (
            SELECT job.status, job.task_path FROM pgjobs_job AS job WHERE job.id = edge.id LIMIT 1
        ) AS job ON TRUE
    )::text,
    (
        SELECT json_agg(json_build_array(run.id, run.status, run.seconds) ORDER BY run.id DESC)
        FROM (
            SELECT
                recent.id, recent.status,
                -- JSON has no infinity.
                CASE
                    WHEN isfinite(recent.finished_at) AND isfinite(recent.last_attempted_at)
                        THEN date_part('epoch', recent.finished_at)
                        - date_part('epoch', recent.last_attempted_at)
                END AS seconds
            FROM (
                SELECT
                    job.id, job.status, job.task_path, job.finished_at, job.last_attempted_at
                FROM pgjobs_job_finished AS job
                ORDER BY job.id DESC
                LIMIT %(max_looked_at)s::integer
            ) AS recent
            WHERE recent.task_path = %(task_path)s::text
            ORDER BY recent.id DESC
            LIMIT %(max_runs)s::integer
        ) AS run
    )::text,
    (
        SELECT twin.id
        FROM pgjobs_job_live AS twin
        WHERE
            twin.unique_key = %(unique_key)s::text AND twin.task_path = %(task_path)s::text
            AND {twin.occupies_key}
            AND twin.id <> %(id)s::bigint
    ),
    bound.pattern, bound.max_running,
    (SELECT worker.name FROM pgjobs_worker AS worker WHERE worker.id = %(worker_id)s::bigint)
FROM (SELECT %(concurrency_key)s::text AS concurrency_key) AS given
LEFT JOIN LATERAL ({given.concurrency_key.limit}) AS bound ON TRUE
