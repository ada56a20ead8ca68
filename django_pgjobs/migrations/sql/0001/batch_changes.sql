-- What is noted of batches becomes numbers of their rows. pgjobs_settle_v1 calls these functions, and
-- its settings hold in them. Of home see wake.sql.
DO $do$
BEGIN
    EXECUTE replace($create$
-- Lock those of the batches *todo* that nobody else has locked; those that are to be sealed, only if
-- nobody adds to them. The others are *missed*. Broken ones are neither. To those of *locked* that
-- are *unsealed* somebody may add: nothing that seals them is noted yet.
--
-- Who adds jobs holds FOR KEY SHARE: nothing is sealed beside that. FOR UPDATE is to be the first lock
-- of a batch that is sealed, so those *held* are left for the next transaction, if they are open by
-- hand: where a weaker one stands beside that of an adder, both are kept in a list of lockers, and the
-- server does not tell a later adder, who still sees an older version of the row, that it was sealed.
CREATE FUNCTION home.pgjobs_take_batches_v1(
    todo bigint[], held bigint[], OUT locked bigint[], OUT missed bigint[],
    OUT unsealed bigint[], OUT may_have_pages boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
DECLARE
    sealing bigint[];
    stopping bigint[];
    free bigint[] := '{}';
BEGIN
    missed := '{}';
    SELECT
        COALESCE(array_agg(batch.id) FILTER (WHERE batch.seals), '{}'),
        COALESCE(array_agg(batch.id) FILTER (WHERE NOT batch.seals AND batch.stops), '{}')
    INTO sealing, stopping
    FROM (
        SELECT
            taken.id,
            (taken.follows IS NOT NULL AND taken.open_predecessors <= 0) OR (
                SELECT change.batch_id
                FROM home.pgjobs_batch_change AS change
                WHERE change.batch_id = taken.id
                    AND (change.seals OR change.predecessors <> 0)
                LIMIT 1
            ) IS NOT NULL AS seals,
            -- It may be sealed next, but is cancelled in any case.
            taken.follows IS NULL AND (
                SELECT change.batch_id
                FROM home.pgjobs_batch_change AS change
                WHERE change.batch_id = taken.id AND change.cancels
                LIMIT 1
            ) IS NOT NULL AS stops
        FROM home.pgjobs_batch AS taken
        WHERE taken.id = ANY (todo) AND taken.sealed_at IS NULL
    ) AS batch;
    IF cardinality(sealing) > 0 OR cardinality(stopping) > 0 THEN
        free := ARRAY(
            SELECT batch.id
            FROM home.pgjobs_batch AS batch
            WHERE
                batch.id = ANY (sealing || stopping) AND batch.broken = ''
                AND (batch.follows IS NOT NULL OR batch.id <> ALL (held))
            ORDER BY batch.id
            FOR UPDATE SKIP LOCKED
        );
    END IF;
    SELECT
        COALESCE(array_agg(taken.id), '{}'),
        COALESCE(
            array_agg(taken.id) FILTER (WHERE taken.sealed_at IS NULL AND taken.id <> ALL (free)),
            '{}'
        ),
        COALESCE(bool_or(taken.has_items), FALSE)
    INTO locked, unsealed, may_have_pages
    FROM (
        SELECT
            batch.id, batch.sealed_at, batch.follows IN ('each', 'each item') AS has_items
        FROM home.pgjobs_batch AS batch
        WHERE
            batch.id = ANY (todo) AND batch.broken = ''
            AND (batch.id = ANY (free) OR batch.id <> ALL (sealing))
        ORDER BY batch.id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS taken;
    IF cardinality(locked) < cardinality(todo) THEN
        missed := ARRAY(
            SELECT batch.id
            FROM home.pgjobs_batch AS batch
            WHERE batch.id = ANY (todo) AND batch.id <> ALL (locked) AND batch.broken = ''
        );
        -- Of batches that are gone.
        DELETE FROM home.pgjobs_batch_change AS change
        WHERE change.batch_id = ANY (todo) AND (
            SELECT batch.id FROM home.pgjobs_batch AS batch WHERE batch.id = change.batch_id LIMIT 1
        ) IS NULL;
        DELETE FROM home.pgjobs_batch_page AS page
        WHERE page.batch_id = ANY (todo) AND (
            SELECT batch.id FROM home.pgjobs_batch AS batch WHERE batch.id = page.batch_id LIMIT 1
        ) IS NULL;
    END IF;
END
$body$;

-- Add what was noted of the batches *locked* to their rows, and seal them. What would seal those that
-- are *unsealed* stays noted: it was committed after they were locked, and nobody knows whether
-- somebody adds to them. Whoever noted it looks after it.
--
-- Return how many had something noted, and which of them: have all predecessors complete now, and a
-- job of their own to make (*begun*); may be open again, whatever they come to together
-- (*reopening*); have more children (*growing*); are to be cancelled (*stopped*); have a job that
-- failed now, and a policy for that (*failing*); have jobs that are not to end any more (*resumed*).
-- The last three say whether any is to be looked at so.
CREATE FUNCTION home.pgjobs_fold_changes_v1(
    locked bigint[], unsealed bigint[], OUT changed bigint, OUT begun bigint[],
    OUT reopening bigint[], OUT growing bigint[], OUT stopped bigint[], OUT failing bigint[],
    OUT resumed bigint[], OUT may_cancel boolean, OUT may_reopen boolean, OUT has_parts boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    WITH gone AS (
        DELETE FROM home.pgjobs_batch_change AS change
        WHERE
            change.batch_id = ANY (locked)
            AND NOT (
                (change.seals OR change.predecessors <> 0) AND change.batch_id = ANY (unsealed)
            )
        RETURNING
            change.batch_id, change.jobs, change.successful, change.failed, change.cancelled,
            change.predecessors, change.parts, change.children, change.failed_children,
            change.failed_predecessors, change.seals, change.cancels, change.reopens
    ),
    tally AS (
        SELECT
            gone.batch_id, sum(gone.jobs) AS jobs, sum(gone.successful) AS successful,
            sum(gone.failed) AS failed, sum(gone.cancelled) AS cancelled,
            sum(gone.predecessors) AS predecessors, sum(gone.parts) AS parts,
            sum(gone.children) AS children, sum(gone.failed_children) AS failed_children,
            sum(gone.failed_predecessors) AS failed_predecessors,
            bool_or(gone.seals) AS seals, bool_or(gone.cancels) AS cancels,
            bool_or(gone.reopens OR gone.parts > 0) AS reopens,
            bool_or(gone.children > 0) AS grows, bool_or(gone.failed > 0) AS fails,
            bool_or(gone.predecessors <> 0) AS is_moved,
            bool_or(gone.successful + gone.failed + gone.cancelled > 0) AS finishes
        FROM gone
        GROUP BY gone.batch_id
    ),
    folded AS (
        UPDATE home.pgjobs_batch AS batch
        SET
            jobs = batch.jobs + tally.jobs,
            successful = batch.successful + tally.successful,
            failed = batch.failed + tally.failed,
            cancelled = batch.cancelled + tally.cancelled,
            open_predecessors = batch.open_predecessors + tally.predecessors,
            open_parts = batch.open_parts + tally.parts,
            open_children = batch.open_children + tally.children,
            failed_children = batch.failed_children + tally.failed_children,
            failed_predecessors = batch.failed_predecessors + tally.failed_predecessors,
            -- What it cannot begin now it does when the cancel is taken back.
            runs_again = batch.runs_again OR (
                (batch.cancel_requested_at IS NOT NULL OR tally.cancels)
                AND tally.is_moved AND batch.jobs > 0
                AND COALESCE(batch.follows, '') IN ('gather', 'completion')
            ),
            cancel_requested_at = CASE
                WHEN batch.cancel_requested_at IS NOT NULL THEN batch.cancel_requested_at
                -- Else it is too late: the tree was complete before.
                WHEN tally.cancels
                    AND (batch.tree_completed_at IS NULL OR tally.reopens OR tally.grows)
                    THEN clock_timestamp()
            END,
            sealed_at = CASE
                -- One of those that it follows is open again.
                WHEN batch.follows IS NOT NULL
                    AND batch.open_predecessors + tally.predecessors > 0
                    THEN NULL
                WHEN batch.sealed_at IS NOT NULL THEN batch.sealed_at
                WHEN tally.seals OR batch.follows IS NOT NULL THEN clock_timestamp()
            END
        FROM tally
        WHERE batch.id = tally.batch_id AND batch.id = ANY (locked)
        RETURNING
            batch.id,
            -- Whatever they come to together: what was opened again may be complete by now.
            tally.reopens OR (tally.is_moved AND batch.follows IS NOT NULL) AS reopens,
            tally.grows,
            (
                tally.is_moved
                OR (batch.runs_again AND tally.finishes)
                OR (tally.reopens AND (batch.jobs = 0 OR batch.runs_again) AND (
                    -- What it follows is still to learn that it is open again.
                    SELECT edge.batch_id
                    FROM home.pgjobs_batch_edge AS edge
                    CROSS JOIN LATERAL (
                        SELECT change.batch_id
                        FROM home.pgjobs_batch_change AS change
                        WHERE change.batch_id = edge.waits_for AND change.reopens
                        LIMIT 1
                    ) AS noted
                    -- In an order that the primary key alone has.
                    WHERE edge.batch_id >= batch.id AND edge.batch_id <= batch.id
                    ORDER BY edge.batch_id, edge.waits_for
                    LIMIT 1
                ) IS NULL)
            )
            AND batch.open_predecessors <= 0
            AND batch.follows IN ('gather', 'completion')
            AND (batch.runs_after_failure OR batch.failed_predecessors <= 0)
            AND batch.cancel_requested_at IS NULL AS begins,
            -- A part may have been opened while the cancel was on its way to those there were.
            (tally.cancels OR tally.grows) AND batch.cancel_requested_at IS NOT NULL AS stops,
            -- By what has failed now: what failed before may be about to be requeued.
            tally.fails AND batch.failed > 0 AND batch.on_failed_job <> 'continue'
            AND batch.cancel_requested_at IS NULL AS fails,
            batch.cancel_requested_at IS NOT NULL AS is_cancelled,
            batch.cancel_requested_at IS NULL AND batch.unasked_at IS NOT NULL AS resumes,
            batch.completed_at IS NOT NULL AS was_complete,
            batch.open_parts > 0 AS has_open_parts
    )
    SELECT
        count(*),
        COALESCE(array_agg(folded.id) FILTER (WHERE folded.begins), '{}'),
        COALESCE(array_agg(folded.id) FILTER (WHERE folded.reopens), '{}'),
        COALESCE(array_agg(folded.id) FILTER (WHERE folded.grows), '{}'),
        COALESCE(array_agg(folded.id) FILTER (WHERE folded.stops), '{}'),
        COALESCE(array_agg(folded.id) FILTER (WHERE folded.fails), '{}'),
        COALESCE(array_agg(folded.id) FILTER (WHERE folded.resumes), '{}'),
        bool_or(folded.fails OR folded.is_cancelled), bool_or(folded.was_complete),
        bool_or(folded.has_open_parts)
    INTO
        changed, begun, reopening, growing, stopped, failing, resumed, may_cancel, may_reopen,
        has_parts
    FROM folded;
END
$body$;
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
