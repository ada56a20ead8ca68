-- Read what the warnings of the Overview are judged by and no other part of it shows: what other
-- statements tell, as JSON, in one. A page may ask only so often.
-- Parameters: those of the statements named below; within_seconds double precision, max_due integer
--     (jobs that become ready in this time, that are looked at for tasks which no worker knows), notes
--     text[] (those of jobs that were put off for it); waiting_names text[] (queues of which the job
--     that waits longest is wanted); max_old integer (the oldest live jobs, that are looked at for it
--     and for such as are held)
-- Returns: one row: the rows of list_crews.sql, list_failing_tasks.sql, list_mutes.sql,
--     list_all_pauses.sql, list_backlogs.sql and list_vain_waits.sql; queues and tasks whose jobs wait
--     for a worker that knows the task; the job of each queue that waits longest, since when, and
--     whether it has keys: none that is paused or waits in vain; how many of the oldest live jobs are
--     held, because a predecessor failed, and the first of them; the rows of list_missing_rates.sql
--     and list_long_runs.sql
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_due; those of the statements named
WITH missing AS MATERIALIZED (
    {rows of list_missing_rates}
),
first_job AS MATERIALIZED (
    {rows of list_first_jobs}
),
worker AS MATERIALIZED (
    SELECT live.backends, live.queues, live.excluded_queues, live.task_paths
    FROM pgjobs_worker AS live
    WHERE {live.is_live}
),
-- Jobs of other tasks pass by a job whose task no worker knows, so it is among the first of its place,
-- or among those that a worker has put off.
waiting AS MATERIALIZED (
    SELECT first_job.backend, first_job.queue_name, first_job.task_path FROM first_job
    UNION
    SELECT due.backend, due.queue_name, due.task_path
    FROM (
        SELECT job.backend, job.queue_name, job.task_path, job.note, job.hold
        FROM pgjobs_job_live AS job
        WHERE
            job.status = 'ready'
            AND job.due_at <= statement_timestamp()
            + make_interval(secs => %(within_seconds)s::double precision)
        ORDER BY job.due_at
        LIMIT %(max_due)s::integer
    ) AS due
    WHERE due.hold IS NULL AND due.note = ANY (%(notes)s::text[])
),
-- Live workers serve the queue, and none of these knows the task.
unknown AS MATERIALIZED (
    SELECT DISTINCT asked.queue_name, asked.task_path
    FROM (
        SELECT
            waiting.queue_name, waiting.task_path,
            bool_or(waiting.task_path = ANY (worker.task_paths)) AS is_known
        FROM waiting
        JOIN worker
            ON waiting.backend = ANY (worker.backends)
            AND (worker.queues IS NULL OR waiting.queue_name = ANY (worker.queues))
            AND waiting.queue_name <> ALL (worker.excluded_queues)
        GROUP BY waiting.backend, waiting.queue_name, waiting.task_path
    ) AS asked
    WHERE NOT asked.is_known
    ORDER BY asked.queue_name, asked.task_path
    LIMIT %(max_rows)s::integer
),
-- Jobs that wait for ever are the oldest by and by.
old_job AS MATERIALIZED (
    SELECT
        job.id, job.backend, job.queue_name, job.task_path, job.concurrency_key, job.lane,
        job.rate_limit_keys, job.rate_cost, job.status, job.due_at, job.hold, job.ready_at,
        job.enqueued_at, job.run_after
    FROM pgjobs_job_live AS job
    ORDER BY job.id
    LIMIT %(max_old)s::integer
),
-- Without those that a pause, an unknown task or a rate limit that lets none go keeps for sure.
oldest AS (
    SELECT DISTINCT ON (job.queue_name)
        job.queue_name, job.id, date_part('epoch', job.since) AS since, job.has_keys
    FROM (
        SELECT first_job.* FROM first_job
        UNION ALL
        SELECT {old.as_waiting}
        FROM old_job AS old
        WHERE {old.is_ready}
    ) AS job
    WHERE
        job.queue_name = ANY (%(waiting_names)s::text[])
        AND NOT {job.is_vain}
        AND NOT EXISTS (
            SELECT FROM pgjobs_pause AS pause
            WHERE {pause.holds} AND {pause.is_of_job}
        )
        AND NOT EXISTS (
            SELECT FROM unknown
            WHERE unknown.queue_name = job.queue_name AND unknown.task_path = job.task_path
        )
    ORDER BY job.queue_name, job.since, job.id
)
SELECT
    COALESCE((SELECT json_agg(crew) FROM ({rows of list_crews}) AS crew), '[]'),
    COALESCE((SELECT json_agg(task) FROM ({rows of list_failing_tasks}) AS task), '[]'),
    COALESCE((SELECT json_agg(muted) FROM ({rows of list_mutes}) AS muted), '[]'),
    COALESCE((SELECT json_agg(paused) FROM ({rows of list_all_pauses}) AS paused), '[]'),
    COALESCE((SELECT json_agg(sampled) FROM ({rows of list_backlogs}) AS sampled), '[]'),
    COALESCE((
        SELECT json_agg(vain)
        FROM ({rows of list_vain_waits}) AS vain
        WHERE (SELECT count(*) FROM missing) > 0
    ), '[]'),
    COALESCE((SELECT json_agg(unknown) FROM unknown), '[]'),
    COALESCE((SELECT json_agg(oldest) FROM oldest), '[]'),
    (
        SELECT json_build_object('number', count(*), 'first_id', min(old_job.id))
        FROM old_job
        WHERE old_job.status = 'ready' AND old_job.hold = 'predecessor failed'
    ),
    COALESCE((SELECT json_agg(missing) FROM missing), '[]'),
    COALESCE((SELECT json_agg(run) FROM ({rows of list_long_runs}) AS run), '[]')
