-- Say what a batch waits for.
-- Parameters: batch_id bigint; max_named integer (batches of each kind); max_counted integer (jobs)
-- Returns: broken, is_sealed, is_complete, is_tree_complete, is_cancelled, unfinished (as counted), follows,
--     waits_for, failed_before (bigint[], those for whose failure it is not begun), parts, children
--     (bigint[], those that are not complete), changes (noted and not
--     counted), is_sealing (it is among these), waiting (ready jobs, up to max_counted), the first of
--     these, running;
--     process, application name and age in seconds of the oldest other transaction that has locked
--     some batch, NULL if there is none that we may see; no row if there is no such batch
-- Locks: none
-- Index: pgjobs_batch_pkey, pgjobs_batch_edge_pkey, pgjobs_batch_parent, pgjobs_batch_change_batch,
--     pgjobs_job_live_batch, pgjobs_job_running
SELECT
    batch.broken, batch.sealed_at IS NOT NULL, batch.completed_at IS NOT NULL,
    batch.tree_completed_at IS NOT NULL, batch.cancel_requested_at IS NOT NULL,
    batch.jobs - batch.successful - batch.failed - batch.cancelled, batch.follows IS NOT NULL,
    ARRAY(
        SELECT predecessor.id
        FROM pgjobs_batch_edge AS edge
        CROSS JOIN LATERAL (
            SELECT followed.id
            FROM pgjobs_batch AS followed
            WHERE followed.id = edge.waits_for AND followed.completed_at IS NULL
            OFFSET 0
        ) AS predecessor
        WHERE edge.batch_id = batch.id
        ORDER BY predecessor.id
        LIMIT %(max_named)s::integer
    ),
    ARRAY(
        SELECT predecessor.id
        FROM pgjobs_batch_edge AS edge
        CROSS JOIN LATERAL (
            SELECT followed.id
            FROM pgjobs_batch AS followed
            WHERE
                followed.id = edge.waits_for AND followed.completed_at IS NOT NULL
                AND followed.carried_failure
            OFFSET 0
        ) AS predecessor
        WHERE
            edge.batch_id = batch.id AND batch.follows IN ('gather', 'completion')
            AND {batch.lacks_success}
        ORDER BY predecessor.id
        LIMIT %(max_named)s::integer
    ),
    ARRAY(
        SELECT part.id
        FROM (
            SELECT below.id, below.follows, below.tree_completed_at
            FROM pgjobs_batch AS below
            WHERE below.parent_id = batch.id
            OFFSET 0
        ) AS part
        WHERE part.follows IS NULL AND part.tree_completed_at IS NULL
        ORDER BY part.id
        LIMIT %(max_named)s::integer
    ),
    ARRAY(
        SELECT child.id
        FROM (
            SELECT below.id, below.follows, below.tree_completed_at
            FROM pgjobs_batch AS below
            WHERE below.parent_id = batch.id
            OFFSET 0
        ) AS child
        WHERE child.follows IS NOT NULL AND child.tree_completed_at IS NULL
        ORDER BY child.id
        LIMIT %(max_named)s::integer
    ),
    (SELECT count(*) FROM pgjobs_batch_change AS change WHERE change.batch_id = batch.id),
    EXISTS (
        SELECT FROM pgjobs_batch_change AS change
        WHERE change.batch_id = batch.id AND change.seals
    ),
    (
        SELECT count(*)
        FROM (
            SELECT job.id
            FROM pgjobs_job_live AS job
            WHERE job.batch_id = batch.id AND job.status = 'ready'
            LIMIT %(max_counted)s::integer
        ) AS waiting
    ),
    (
        SELECT job.id
        FROM pgjobs_job_live AS job
        WHERE job.batch_id = batch.id AND job.status = 'ready'
        ORDER BY job.batch_id, job.id
        LIMIT 1
    ),
    (
        SELECT count(*)
        FROM pgjobs_job_live AS job
        WHERE job.status = 'running' AND job.batch_id = batch.id
    ),
    holder.pid, holder.application_name,
    EXTRACT(EPOCH FROM clock_timestamp() - holder.xact_start)::double precision
FROM pgjobs_batch AS batch
LEFT JOIN (
    SELECT activity.pid, activity.application_name, activity.xact_start
    FROM pg_locks AS lock
    INNER JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
    WHERE
        lock.relation = 'pgjobs_batch'::regclass::oid
        AND lock.database = (
            SELECT base.oid FROM pg_database AS base WHERE base.datname = current_database()
        )
        AND lock.mode IN ('RowShareLock', 'RowExclusiveLock')
        AND lock.pid <> pg_backend_pid() AND activity.xact_start IS NOT NULL
    ORDER BY activity.xact_start
    LIMIT 1
) AS holder ON TRUE
WHERE batch.id = %(batch_id)s::bigint
