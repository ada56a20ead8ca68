-- Read what the Overview shows and warns of beside the jobs: queues, workers, the server.
-- Parameters: max_rows integer (of each list), max_workers integer (that are described),
--     old_seconds, unsealed_seconds double precision (age of a transaction, and of a batch that is
--     not sealed, that is worth a warning); max_open, max_named integer (batches that are looked
--     at, the oldest open ones, and of those that stand still)
-- Returns: one row: the time now; queues with settings or a pause, as JSON; live workers as
--     JSON, with how many jobs they run; how many workers live, their slots, how many have not
--     said goodbye; how many were lost in the last hour; the versions of live workers; what
--     they serve, as JSON; the oldest transaction that keeps dead rows from being removed, as
--     JSON or NULL; live and dead rows of the live partition as the server counts them; batches that
--     stand still, as JSON
-- Locks: none
-- Index: pgjobs_job_running, pgjobs_batch_open
SELECT
    statement_timestamp(),
    COALESCE((
        SELECT json_agg(queue)
        FROM (
            SELECT
                COALESCE(settings.queue_name, paused.name) AS name, settings.max_running,
                paused.name IS NOT NULL AS is_paused, COALESCE(paused.reason, '') AS reason,
                COALESCE(paused.paused_by, '') AS paused_by
            FROM pgjobs_queue_settings AS settings
            FULL JOIN (
                SELECT pause.name, pause.reason, pause.paused_by
                FROM pgjobs_pause AS pause
                WHERE pause.kind = 'queue' AND {pause.holds}
            ) AS paused ON paused.name = settings.queue_name
            ORDER BY paused.name IS NULL, name
            LIMIT %(max_rows)s::integer
        ) AS queue
    ), '[]'),
    COALESCE((
        SELECT json_agg(shown)
        FROM (
            SELECT
                worker.id, worker.name, worker.version, worker.slots,
                EXTRACT(EPOCH FROM statement_timestamp() - {worker.heartbeat_at.in_calendar})
                AS silent_seconds,
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
    COALESCE((
        SELECT json_agg(service)
        FROM (
            SELECT DISTINCT worker.backends, worker.queues, worker.excluded_queues
            FROM pgjobs_worker AS worker
            WHERE {worker.is_live}
            LIMIT %(max_rows)s::integer
        ) AS service
    ), '[]'),
    (
        SELECT json_build_object(
            'pid', activity.pid, 'application', activity.application_name,
            'state', activity.state,
            'seconds', EXTRACT(EPOCH FROM clock_timestamp() - activity.xact_start)
        )
        FROM pg_stat_activity AS activity
        WHERE
            activity.datname = current_database()
            AND activity.backend_type = 'client backend'
            AND activity.pid <> pg_backend_pid()
            AND (activity.backend_xmin IS NOT NULL OR activity.backend_xid IS NOT NULL)
            AND activity.xact_start
            < clock_timestamp() - make_interval(secs => %(old_seconds)s::double precision)
        ORDER BY activity.xact_start
        LIMIT 1
    ),
    COALESCE(heap.n_live_tup, 0), COALESCE(heap.n_dead_tup, 0),
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
            array_agg(DISTINCT worker.version) FILTER (WHERE worker.is_live), '{}'
        ) AS versions
    FROM (
        SELECT
            registered.slots, registered.ended_at, registered.lost, registered.version,
            {registered.is_live} AS is_live
        FROM pgjobs_worker AS registered
    ) AS worker
) AS workers
LEFT JOIN pg_stat_all_tables AS heap ON heap.relid = 'pgjobs_job_live'::regclass::oid
