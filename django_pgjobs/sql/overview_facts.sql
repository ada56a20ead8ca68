-- Read what the Overview shows and warns of beside the jobs: workers, the server, what stands still.
-- Parameters: max_rows, max_workers integer (of samples; of workers that are described);
--     old_seconds, unsealed_seconds double precision (age of a transaction, and of a batch that is
--     not sealed, that is worth a warning); max_open, max_named integer (batches that are looked
--     at, the oldest open ones, and of those that stand still); late double precision (seconds
--     after which a schedule is late); max_runs, max_schedules integer (last runs of schedules that
--     are looked at, and schedules)
-- Returns: one row: the time now; samples of all queues together, the newest ones, by time, as JSON:
--     seconds since 1970, ready jobs; live workers as JSON, with how many jobs they run; how many
--     workers live, their slots, how many have not said goodbye; how many were lost in the last
--     hour; the versions of live workers; the oldest transaction that keeps dead rows from being
--     removed, as JSON or NULL; live and dead rows of the live partition as the server counts them;
--     batches that stand still, as JSON; schedules that are "late", that say an "error", or whose
--     last run "failed", as JSON: name, which of these, the error
-- Locks: none
-- Index: pgjobs_job_running, pgjobs_batch_open, pgjobs_queue_sample_measured, pgjobs_job_live_pkey,
--     pgjobs_job_finished_pkey
WITH watched AS (
    SELECT
        schedule.name, schedule.next_at, schedule.plan_from, schedule.error, schedule.last_at,
        schedule.last_job_id
    FROM pgjobs_schedule AS schedule
    WHERE {schedule.is_in_force}
),
failed AS (
    SELECT recent.name
    FROM (
        SELECT watched.name, watched.last_job_id
        FROM watched
        WHERE watched.last_job_id IS NOT NULL
        ORDER BY watched.last_at DESC
        LIMIT %(max_runs)s::integer
    ) AS recent
    CROSS JOIN LATERAL (
        SELECT job.status
        FROM pgjobs_job AS job
        WHERE job.id = recent.last_job_id
        LIMIT 1
    ) AS last_job
    WHERE last_job.status = 'failed'
),
troubled AS (
    SELECT
        watched.name,
        CASE
            WHEN {watched.seconds_due} > %(late)s::double precision THEN 'late'
            WHEN watched.error <> '' THEN 'error'
            WHEN failed.name IS NOT NULL THEN 'failed'
        END AS trouble,
        watched.error
    FROM watched
    LEFT JOIN failed ON failed.name = watched.name
)
SELECT
    statement_timestamp(),
    COALESCE((
        SELECT
            json_agg(
                json_build_array(date_part('epoch', sample.measured_at), sample.ready)
                ORDER BY sample.measured_at
            )
        FROM (
            SELECT latest.measured_at, latest.ready
            FROM pgjobs_queue_sample AS latest
            WHERE
                latest.queue_name IS NULL
                AND latest.measured_at > statement_timestamp() - interval '1 hour'
                AND latest.measured_at <= statement_timestamp()
            ORDER BY latest.measured_at DESC
            LIMIT %(max_rows)s::integer
        ) AS sample
    ), '[]'),
    COALESCE((
        SELECT json_agg(shown)
        FROM (
            SELECT
                worker.id, worker.name, worker.version, worker.slots,
                EXTRACT(EPOCH FROM statement_timestamp() - {worker.heartbeat_at.in_calendar})
                AS silent_seconds,
                date_part('epoch', {worker.lease_expires_at.in_calendar})
                - date_part('epoch', {worker.heartbeat_at.in_calendar}) AS lease_seconds,
                worker.quiet_requested_at IS NOT NULL AS is_quiet,
                worker.stop_requested_at IS NOT NULL AS is_stopping,
                (
                    SELECT count(*)
                    FROM pgjobs_job_live AS job
                    WHERE job.status = 'running' AND job.worker_id = worker.id
                ) AS running
            FROM pgjobs_worker AS worker
            WHERE {worker.is_live}
            ORDER BY worker.id DESC
            LIMIT %(max_workers)s::integer
        ) AS shown
    ), '[]'),
    workers.live, workers.slots, workers.unended, workers.lost, workers.versions,
    (
        SELECT json_build_object(
            'pid', activity.pid, 'application', activity.application_name,
            'state', activity.state,
            'seconds', EXTRACT(EPOCH FROM clock_timestamp() - activity.xact_start)
        )
        -- The view would look up the names of databases and roles.
        FROM pg_stat_get_activity(NULL) AS activity
        WHERE
            activity.datid
            = (SELECT here.oid FROM pg_database AS here WHERE here.datname = current_database())
            AND activity.backend_type = 'client backend'
            AND activity.pid <> pg_backend_pid()
            AND (activity.backend_xmin IS NOT NULL OR activity.backend_xid IS NOT NULL)
            AND activity.xact_start
            < clock_timestamp() - make_interval(secs => %(old_seconds)s::double precision)
        ORDER BY activity.xact_start
        LIMIT 1
    ),
    COALESCE(pg_stat_get_live_tuples('pgjobs_job_live'::regclass::oid), 0),
    COALESCE(pg_stat_get_dead_tuples('pgjobs_job_live'::regclass::oid), 0),
    COALESCE((
        SELECT json_agg(standing)
        FROM (
            SELECT batch.id, left(batch.name, 80) AS name, batch.broken <> '' AS is_broken
            FROM (
                SELECT
                    oldest.id, oldest.name, oldest.broken, oldest.sealed_at, oldest.follows,
                    oldest.created_at
                FROM pgjobs_batch AS oldest
                WHERE oldest.tree_completed_at IS NULL
                ORDER BY oldest.id
                LIMIT %(max_open)s::integer
            ) AS batch
            WHERE
                batch.broken <> ''
                OR (
                    batch.sealed_at IS NULL AND batch.follows IS NULL
                    AND batch.created_at < statement_timestamp()
                    - make_interval(secs => %(unsealed_seconds)s::double precision)
                )
            ORDER BY batch.broken = '', batch.id
            LIMIT %(max_named)s::integer
        ) AS standing
    ), '[]'),
    COALESCE((
        SELECT json_agg(json_build_array(listed.name, listed.trouble, listed.error))
        FROM (
            SELECT troubled.name, troubled.trouble, left(troubled.error, 300) AS error
            FROM troubled
            WHERE troubled.trouble IS NOT NULL
            ORDER BY troubled.name
            LIMIT %(max_schedules)s::integer
        ) AS listed
    ), '[]')
FROM (
    SELECT
        count(*) FILTER (WHERE worker.is_live) AS live,
        COALESCE(sum(worker.slots) FILTER (WHERE worker.is_live), 0)::bigint AS slots,
        count(*) FILTER (WHERE worker.ended_at IS NULL) AS unended,
        count(*) FILTER (
            WHERE worker.lost AND worker.ended_at > statement_timestamp() - interval '1 hour'
            OR worker.ended_at IS NULL AND NOT worker.is_live
        ) AS lost,
        COALESCE(
            array_agg(DISTINCT worker.version) FILTER (
                -- That of a worker over HTTP is no version of ours.
                WHERE worker.is_live AND worker.token_id IS NULL
            ),
            '{}'
        ) AS versions
    FROM (
        SELECT
            registered.slots, registered.ended_at, registered.lost, registered.version,
            registered.token_id,
            {registered.is_live} AS is_live
        FROM pgjobs_worker AS registered
    ) AS worker
) AS workers
