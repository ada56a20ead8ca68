-- Note what is to be corrected of open batches whose numbers are not those of the jobs and batches
-- that are there: somebody has changed them by SQL, so nobody noted it. Return these batches.
--
-- Jobs are counted only of a sealed batch that waits for some of which none is there. Of open
-- predecessors, parts and children it matters whether there are some, not how many.
--
-- It looks twice, and locks those that seem wrong in between. While a batch is locked nobody counts
-- it; and whatever happens is committed together with what is noted of it. So where the second look
-- finds nothing noted, what it counts is all there is. Of home, seqscan and jit see wake.sql and
-- resolve.sql.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_recount_v1(suspects bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET enable_nestloop = on
AS $body$
#variable_conflict use_column
DECLARE
    looked bigint[] := suspects;
    wrong home.pgjobs_batch_change[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    FOR look IN 1..2 LOOP
        WITH busy AS MATERIALIZED (
            SELECT DISTINCT job.batch_id
            FROM (
                -- In an order that the index of running jobs alone has.
                SELECT running.batch_id
                FROM home.pgjobs_job_live AS running
                WHERE running.status = 'running' AND running.batch_id = ANY (looked)
                ORDER BY running.worker_id, running.id
                OFFSET 0
            ) AS job
        ),
        missing AS MATERIALIZED (
            SELECT batch.id
            FROM home.pgjobs_batch AS batch
            WHERE
                batch.id = ANY (looked) AND batch.sealed_at IS NOT NULL
                AND batch.jobs <> batch.successful + batch.failed + batch.cancelled
                -- In an order that the index of batches alone has.
                AND (
                    SELECT job.id
                    FROM home.pgjobs_job_live AS job
                    WHERE
                        job.status = 'ready' AND job.batch_id >= batch.id
                        AND job.batch_id <= batch.id
                    ORDER BY job.batch_id, job.id
                    LIMIT 1
                ) IS NULL
                AND NOT EXISTS (SELECT FROM busy WHERE busy.batch_id = batch.id)
        )
        SELECT array_agg(
            (
                batch.id, COALESCE(found.jobs - batch.jobs, 0),
                COALESCE(found.successful - batch.successful, 0),
                COALESCE(found.failed - batch.failed, 0),
                COALESCE(found.cancelled - batch.cancelled, 0),
                CASE
                    WHEN above.is_moved THEN above.open - batch.open_predecessors
                    ELSE 0
                END,
                CASE
                    WHEN above.is_moved THEN above.failed - batch.failed_predecessors
                    ELSE 0
                END,
                CASE WHEN below.is_moved THEN below.parts - batch.open_parts ELSE 0 END,
                CASE WHEN below.is_moved THEN below.open - batch.open_children ELSE 0 END,
                CASE WHEN below.is_moved THEN below.failed - batch.failed_children ELSE 0 END,
                FALSE, FALSE, FALSE
            )::home.pgjobs_batch_change
        )
        INTO wrong
        FROM home.pgjobs_batch AS batch
        LEFT JOIN missing ON missing.id = batch.id
        LEFT JOIN LATERAL (
            SELECT
                count(*) AS jobs,
                count(*) FILTER (WHERE job.status = 'successful') AS successful,
                count(*) FILTER (WHERE job.status = 'failed') AS failed,
                count(*) FILTER (WHERE job.status = 'cancelled') AS cancelled
            FROM home.pgjobs_job_finished AS job
            WHERE job.batch_id = missing.id
        ) AS found ON missing.id IS NOT NULL
        CROSS JOIN LATERAL (
            SELECT
                told.open, told.failed,
                batch.follows IS NOT NULL AND (
                    (told.open > 0) <> (batch.open_predecessors > 0)
                    OR told.failed <> batch.failed_predecessors
                ) AS is_moved
            FROM (
                SELECT
                    count(*) FILTER (WHERE predecessor.completed_at IS NULL)
                    + (
                        SELECT count(*)
                        FROM home.pgjobs_batch_page AS page
                        WHERE page.batch_id = batch.id AND NOT page.is_kept
                    ) AS open,
                    count(*) FILTER (WHERE predecessor.carried_failure) AS failed
                FROM (
                    SELECT each.waits_for
                    FROM home.pgjobs_batch_edge AS each
                    -- In an order that the primary key alone has.
                    WHERE each.batch_id >= batch.id AND each.batch_id <= batch.id
                    ORDER BY each.batch_id, each.waits_for
                    OFFSET 0
                ) AS edge
                CROSS JOIN LATERAL (
                    SELECT one.completed_at, one.carried_failure
                    FROM home.pgjobs_batch AS one
                    WHERE one.id = edge.waits_for
                    OFFSET 0
                ) AS predecessor
            ) AS told
        ) AS above
        CROSS JOIN LATERAL (
            SELECT
                told.open, told.parts, told.failed,
                (told.open > 0) <> (batch.open_children > 0)
                OR (told.parts > 0) <> (batch.open_parts > 0)
                OR told.failed <> batch.failed_children AS is_moved
            FROM (
                SELECT
                    count(*) FILTER (WHERE child.tree_completed_at IS NULL) AS open,
                    count(*) FILTER (
                        WHERE child.tree_completed_at IS NULL AND child.follows IS NULL
                    ) AS parts,
                    count(*) FILTER (WHERE child.tree_failed) AS failed
                FROM home.pgjobs_batch AS child
                WHERE child.parent_id = batch.id
            ) AS told
        ) AS below
        WHERE
            batch.id = ANY (looked) AND batch.broken = '' AND batch.tree_completed_at IS NULL
            AND (missing.id IS NOT NULL OR above.is_moved OR below.is_moved)
            AND (
                SELECT change.batch_id
                FROM home.pgjobs_batch_change AS change
                WHERE change.batch_id = batch.id
                LIMIT 1
            ) IS NULL;
        IF wrong IS NULL THEN
            RETURN;
        END IF;
        IF look = 1 THEN
            looked := ARRAY(
                SELECT batch.id
                FROM home.pgjobs_batch AS batch
                WHERE batch.id = ANY (ARRAY(SELECT one.batch_id FROM unnest(wrong) AS one))
                ORDER BY batch.id
                FOR NO KEY UPDATE SKIP LOCKED
            );
        END IF;
    END LOOP;
    RETURN QUERY
    INSERT INTO home.pgjobs_batch_change AS change
    SELECT one.* FROM unnest(wrong) AS one
    RETURNING change.batch_id;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
