-- Batches are opened again and completed. pgjobs_settle_v1 calls these functions with batches that it
-- has locked, and its settings hold in them. Of home see wake.sql.
DO $do$
BEGIN
    EXECUTE replace($create$
-- Open again what was complete and has unfinished jobs, parts or predecessors, or is among
-- *reopening*; it takes back what it said to those that follow it. Return these.
CREATE FUNCTION home.pgjobs_reopen_batches_v1(locked bigint[], reopening bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    RETURN QUERY
    WITH former AS (
        SELECT batch.id, batch.carried_failure
        FROM home.pgjobs_batch AS batch
        WHERE
            batch.id = ANY (locked) AND batch.completed_at IS NOT NULL
            AND (
                batch.id = ANY (reopening)
                OR batch.sealed_at IS NULL OR batch.open_parts > 0
                OR batch.jobs > batch.successful + batch.failed + batch.cancelled
            )
    ),
    reopened AS (
        UPDATE home.pgjobs_batch AS batch
        SET completed_at = NULL, carried_failure = FALSE
        FROM former
        WHERE batch.id = former.id AND batch.id = ANY (locked)
        RETURNING batch.id, former.carried_failure
    )
    INSERT INTO home.pgjobs_batch_change AS change (
        batch_id, predecessors, failed_predecessors
    )
    SELECT edge.batch_id, 1, -reopened.carried_failure::integer
    FROM reopened
    CROSS JOIN LATERAL (
        SELECT follower.batch_id
        FROM home.pgjobs_batch_edge AS follower
        WHERE follower.waits_for = reopened.id
        OFFSET 0
    ) AS edge
    RETURNING change.batch_id;
END
$body$;

-- The same of trees that were complete and have children again, or are among *growing*: each takes
-- back what it said to its owner. Return the owners.
CREATE FUNCTION home.pgjobs_reopen_trees_v1(locked bigint[], growing bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    RETURN QUERY
    WITH former AS (
        SELECT batch.id, batch.tree_failed
        FROM home.pgjobs_batch AS batch
        WHERE
            batch.id = ANY (locked) AND batch.tree_completed_at IS NOT NULL
            AND (
                batch.completed_at IS NULL OR batch.open_children > 0
                OR batch.id = ANY (growing)
            )
    ),
    reopened AS (
        UPDATE home.pgjobs_batch AS batch
        SET tree_completed_at = NULL, tree_failed = FALSE
        FROM former
        WHERE batch.id = former.id AND batch.id = ANY (locked)
        RETURNING batch.parent_id, batch.follows, former.tree_failed
    )
    INSERT INTO home.pgjobs_batch_change AS change (
        batch_id, children, parts, failed_children
    )
    SELECT
        reopened.parent_id, 1, (reopened.follows IS NULL)::integer,
        -reopened.tree_failed::integer
    FROM reopened
    WHERE reopened.parent_id IS NOT NULL
    RETURNING change.batch_id;
END
$body$;

-- Note that parts are to be sealed that jobs have opened and left open: these have all ended. Return
-- the parts.
CREATE FUNCTION home.pgjobs_seal_parts_v1(locked bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    RETURN QUERY
    INSERT INTO home.pgjobs_batch_change AS change (batch_id, seals)
    SELECT part.id, TRUE
    FROM home.pgjobs_batch AS batch
    JOIN home.pgjobs_batch AS part ON part.parent_id = batch.id
    WHERE
        batch.id = ANY (locked) AND batch.sealed_at IS NOT NULL AND batch.open_parts > 0
        AND batch.jobs <= batch.successful + batch.failed + batch.cancelled
        AND part.opener_id IS NOT NULL AND part.sealed_at IS NULL
        AND part.follows IS NULL
    RETURNING change.batch_id;
END
$body$;

-- Complete batches that are sealed, and whose jobs and parts are finished. Return those that follow
-- them, which are told.
CREATE FUNCTION home.pgjobs_complete_batches_v1(locked bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
DECLARE
    completed bigint[];
BEGIN
    WITH done AS (
        UPDATE home.pgjobs_batch AS batch
        SET
            completed_at = clock_timestamp(),
            -- Of the children only parts are before what follows it.
            carried_failure = batch.failed + batch.cancelled > 0
                OR batch.cancel_requested_at IS NOT NULL
                OR (batch.failed_children > 0 AND (
                    SELECT part.id
                    FROM home.pgjobs_batch AS part
                    WHERE part.parent_id = batch.id AND part.follows IS NULL AND part.tree_failed
                    LIMIT 1
                ) IS NOT NULL)
                OR (batch.failed_predecessors > 0 AND NOT batch.runs_after_failure)
        WHERE
            batch.id = ANY (locked) AND batch.completed_at IS NULL
            AND batch.sealed_at IS NOT NULL AND batch.open_parts <= 0
            AND batch.jobs <= batch.successful + batch.failed + batch.cancelled
            -- It is to hear of what it follows.
            AND (
                SELECT change.batch_id
                FROM home.pgjobs_batch_change AS change
                WHERE change.batch_id = batch.id AND change.predecessors <> 0
                LIMIT 1
            ) IS NULL
            -- What a cancel has kept from being made is still to be made.
            AND (batch.cancel_requested_at IS NOT NULL OR (
                SELECT page.batch_id
                FROM home.pgjobs_batch_page AS page
                WHERE page.batch_id = batch.id
                LIMIT 1
            ) IS NULL)
        RETURNING batch.id
    )
    SELECT COALESCE(array_agg(done.id), '{}') INTO completed FROM done;
    IF cardinality(completed) > 0 THEN
        RETURN QUERY
        INSERT INTO home.pgjobs_batch_change AS change (
            batch_id, predecessors, failed_predecessors
        )
        SELECT edge.batch_id, -1, batch.carried_failure::integer
        FROM home.pgjobs_batch AS batch
        CROSS JOIN LATERAL (
            SELECT follower.batch_id
            FROM home.pgjobs_batch_edge AS follower
            WHERE follower.waits_for = batch.id
            OFFSET 0
        ) AS edge
        WHERE batch.id = ANY (completed)
        RETURNING change.batch_id;
    END IF;
END
$body$;

-- Complete trees, and call back. Return the owners, which are told, and the queues of the jobs that
-- call back.
CREATE FUNCTION home.pgjobs_complete_trees_v1(
    locked bigint[], OUT owners bigint[], OUT queues text[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
DECLARE
    ended bigint[];
BEGIN
    WITH done AS (
        UPDATE home.pgjobs_batch AS batch
        SET
            tree_completed_at = clock_timestamp(),
            tree_failed = batch.failed + batch.cancelled + batch.failed_children > 0
                OR batch.cancel_requested_at IS NOT NULL,
            completions = batch.completions + 1
        WHERE
            batch.id = ANY (locked) AND batch.tree_completed_at IS NULL
            AND batch.completed_at IS NOT NULL AND batch.open_children <= 0
            -- None below is still to learn that it is open again.
            AND (
                SELECT child.id
                FROM home.pgjobs_batch AS child
                CROSS JOIN LATERAL (
                    SELECT noted.batch_id
                    FROM home.pgjobs_batch_change AS noted
                    WHERE noted.batch_id = child.id AND noted.predecessors <> 0
                    LIMIT 1
                ) AS change
                WHERE child.parent_id = batch.id
                LIMIT 1
            ) IS NULL
        RETURNING batch.id
    )
    SELECT COALESCE(array_agg(done.id), '{}') INTO ended FROM done;
    IF cardinality(ended) = 0 THEN
        RETURN;
    END IF;
    queues := ARRAY(
        SELECT started
        FROM (
            SELECT
                array_agg(call.step) AS steps,
                array_agg(
                    concat('[', batch.id, call.step ->> 'more', ']')::json
                ) AS args
            FROM home.pgjobs_batch AS batch
            CROSS JOIN LATERAL json_array_elements(batch.callbacks) AS call (step)
            WHERE
                batch.id = ANY (ended)
                AND call.step ->> 'event' IN (
                    'complete',
                    CASE
                        WHEN batch.tree_failed
                            OR (
                                batch.failed_predecessors > 0
                                AND NOT batch.runs_after_failure
                                AND batch.follows IN ('gather', 'completion')
                            )
                            THEN 'failure'
                        ELSE 'success'
                    END
                )
        ) AS calling
        CROSS JOIN LATERAL home.pgjobs_start_v1(
            calling.steps, calling.args, NULL::bigint[], NULL::bigint[]
        ) AS started
    );
    WITH told AS (
        INSERT INTO home.pgjobs_batch_change AS change (
            batch_id, children, parts, failed_children
        )
        SELECT
            batch.parent_id, -1, -(batch.follows IS NULL)::integer,
            batch.tree_failed::integer
        FROM home.pgjobs_batch AS batch
        -- Not IS NOT NULL, by which the planner may take the index of all that have one.
        WHERE batch.id = ANY (ended) AND COALESCE(batch.parent_id, 0) <> 0
        RETURNING change.batch_id
    )
    SELECT array_agg(told.batch_id) INTO owners FROM told;
END
$body$;
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
