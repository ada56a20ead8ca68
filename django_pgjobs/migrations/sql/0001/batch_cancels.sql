-- A cancel goes down the tree, and ends what waits. pgjobs_settle_v1 calls these functions, and its
-- settings hold in them. Of home see wake.sql.
DO $do$
BEGIN
    EXECUTE replace($create$
-- Cancel jobs of those batches of *locked* that are to be cancelled, at most *most* of those that
-- wait; ask those that run to end. It passes over rows that are locked. Return how many were
-- cancelled, and the batches of which some may be left; it is noted that they are to be looked at
-- again. What waits for a job that it cancels is found by the sweep.
CREATE FUNCTION home.pgjobs_cancel_page_v1(
    locked bigint[], most integer, OUT jobs integer, OUT batches bigint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
DECLARE
    cancelling bigint[] := ARRAY(
        SELECT batch.id
        FROM home.pgjobs_batch AS batch
        WHERE
            batch.id = ANY (locked) AND batch.cancel_requested_at IS NOT NULL
            AND batch.jobs > batch.successful + batch.failed + batch.cancelled
        ORDER BY batch.id
    );
    waiting bigint[];
    asked bigint;
BEGIN
    jobs := 0;
    IF cardinality(cancelling) = 0 THEN
        RETURN;
    END IF;
    -- In an order that the index of batches alone has, also where the planner knows of no jobs.
    waiting := ARRAY(
        SELECT job.id
        FROM unnest(cancelling) AS batch (id)
        CROSS JOIN LATERAL (
            SELECT live.id
            FROM home.pgjobs_job_live AS live
            WHERE
                live.status = 'ready' AND live.batch_id >= batch.id AND live.batch_id <= batch.id
            ORDER BY live.batch_id, live.id
            LIMIT most
            FOR UPDATE SKIP LOCKED
        ) AS job
        LIMIT most
    );
    DELETE FROM home.pgjobs_dependency AS edge WHERE edge.job_id = ANY (waiting);
    WITH ended AS (
        UPDATE home.pgjobs_job AS job
        SET
            status = 'cancelled',
            hold = NULL,
            waits_for = 0,
            finished_at = statement_timestamp(),
            claim = GREATEST(job.claim, 0) % 9000000000000000000 + 1,
            cancel_requested_at = statement_timestamp(),
            note = 'cancelled: with its batch'
        WHERE
            job.id = ANY (waiting) AND job.status IN ('ready', 'running')
            AND job.status <> 'running'
        RETURNING job.batch_id, job.queue_name, job.task_path
    ),
    recorded AS (
        INSERT INTO home.pgjobs_statistic (begins_at, queue_name, task_path, cancelled)
        SELECT
            date_trunc('minute', statement_timestamp(), 'UTC'), ended.queue_name, ended.task_path,
            count(*)
        FROM ended
        GROUP BY ended.queue_name, ended.task_path
    ),
    counted AS (
        SELECT ended.batch_id, count(*) AS jobs FROM ended GROUP BY ended.batch_id
    )
    UPDATE home.pgjobs_batch AS batch
    SET cancelled = batch.cancelled + counted.jobs
    FROM counted
    WHERE batch.id = counted.batch_id AND batch.id = ANY (cancelling);
    UPDATE home.pgjobs_job_live AS job
    SET cancel_requested_at = statement_timestamp()
    WHERE
        job.id = ANY (ARRAY(
            SELECT running.id
            FROM home.pgjobs_job_live AS running
            WHERE
                running.status = 'running' AND running.batch_id = ANY (cancelling)
                AND running.cancel_requested_at IS NULL
            -- Here and below in the order of the index of running jobs: by the primary key all
            -- jobs would be looked through where the planner knows of none.
            ORDER BY running.worker_id, running.id
            -- A job that adds to its batch has locked its own row FOR KEY SHARE.
            FOR NO KEY UPDATE SKIP LOCKED
        ))
        AND job.status IN ('ready', 'running') AND job.status <> 'ready';
    GET DIAGNOSTICS asked = ROW_COUNT;
    IF asked > 0 THEN
        PERFORM pg_notify('pgjobs_cancel', '');
    END IF;
    -- Somebody may have locked one, to claim it or to give it back.
    WITH noted AS (
        INSERT INTO home.pgjobs_batch_change AS change (batch_id)
        SELECT batch.id
        FROM unnest(cancelling) AS batch (id)
        WHERE (
            SELECT job.id
            FROM home.pgjobs_job_live AS job
            WHERE job.status = 'ready' AND job.batch_id >= batch.id AND job.batch_id <= batch.id
            ORDER BY job.batch_id, job.id
            LIMIT 1
        ) IS NOT NULL OR (
            SELECT job.id
            FROM home.pgjobs_job_live AS job
            WHERE
                job.status = 'running' AND job.batch_id = batch.id
                AND job.cancel_requested_at IS NULL
            ORDER BY job.worker_id, job.id
            LIMIT 1
        ) IS NOT NULL
        RETURNING change.batch_id
    )
    SELECT array_agg(noted.batch_id) INTO batches FROM noted;
    jobs := cardinality(waiting);
EXCEPTION WHEN serialization_failure THEN
    -- A job was moved to the other partition while we wanted its lock.
    INSERT INTO home.pgjobs_batch_change (batch_id) SELECT one FROM unnest(cancelling) AS one;
    batches := cancelling;
END
$body$;

-- Let jobs run to their ends that the cancel of a batch has asked to end, before it was taken back. It
-- passes over those that are locked. Return the batches of which some are left; it is noted that
-- they are to be looked at again.
CREATE FUNCTION home.pgjobs_unask_jobs_v1(resumed bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
DECLARE
    postponed bigint[];
BEGIN
    BEGIN
        UPDATE home.pgjobs_job_live AS job
        SET cancel_requested_at = NULL
        WHERE
            job.id = ANY (ARRAY(
                SELECT running.id
                FROM home.pgjobs_job_live AS running
                WHERE
                    running.status = 'running' AND running.cancel_requested_at <= (
                        SELECT batch.unasked_at
                        FROM home.pgjobs_batch AS batch
                        WHERE batch.id = running.batch_id AND batch.id = ANY (resumed)
                    )
                ORDER BY running.worker_id, running.id
                FOR NO KEY UPDATE SKIP LOCKED
            ))
            AND job.status IN ('ready', 'running') AND job.status <> 'ready';
    EXCEPTION WHEN serialization_failure THEN
        -- One was moved to the other partition while we wanted its lock.
        NULL;
    END;
    postponed := ARRAY(
        SELECT batch.id
        FROM home.pgjobs_batch AS batch
        WHERE
            batch.id = ANY (resumed)
            AND (
                SELECT running.id
                FROM home.pgjobs_job_live AS running
                WHERE
                    running.status = 'running' AND running.batch_id = batch.id
                    AND running.cancel_requested_at <= batch.unasked_at
                ORDER BY running.worker_id, running.id
                LIMIT 1
            ) IS NOT NULL
    );
    UPDATE home.pgjobs_batch AS batch
    SET unasked_at = NULL
    WHERE batch.id = ANY (resumed) AND batch.id <> ALL (postponed);
    RETURN QUERY
    INSERT INTO home.pgjobs_batch_change AS change (batch_id)
    SELECT one FROM unnest(postponed) AS one
    RETURNING change.batch_id;
END
$body$;

-- Note the cancels of the batches below those *stopped*, and those that begin where a job has failed
-- (*failing*). What is cancelled and open by hand is to be sealed, as soon as nobody adds to it.
-- Return the batches.
CREATE FUNCTION home.pgjobs_carry_cancels_v1(stopped bigint[], failing bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    RETURN QUERY
    INSERT INTO home.pgjobs_batch_change AS change (batch_id, cancels, seals)
    SELECT child.id, TRUE, FALSE
    FROM home.pgjobs_batch AS child
    WHERE
        child.parent_id = ANY (stopped) AND child.cancel_requested_at IS NULL
        AND child.tree_completed_at IS NULL
    UNION
    SELECT
        CASE
            WHEN batch.on_failed_job = 'cancel branch' THEN batch.id
            ELSE batch.root_id
        END,
        TRUE, FALSE
    FROM home.pgjobs_batch AS batch
    WHERE batch.id = ANY (failing)
    UNION
    SELECT batch.id, FALSE, TRUE
    FROM home.pgjobs_batch AS batch
    WHERE batch.id = ANY (stopped) AND batch.sealed_at IS NULL AND batch.follows IS NULL
    RETURNING change.batch_id;
END
$body$;
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
