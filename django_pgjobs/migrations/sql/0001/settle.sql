-- Count what was noted of the batches *touched*, complete those that are done, and go on with what
-- that lets go: batches that follow them, and those that own them, for so many *levels*.
--
-- It never waits. A batch that another transaction has locked is passed over, and so is one that is
-- to be sealed while somebody adds to it: their changes stay, and whoever looks for changes next
-- asks again. So this may be the last statement of any transaction, with locks of jobs held.
--
-- Rows, in any order: a batch that was passed over (is_missed), or of which a page was done and more
-- is to be (goes_on); one that is open, with the number of its unfinished jobs, NULL as long as it
-- is not sealed; a queue that got jobs.
--
-- Each statement, here and in the functions that it calls, has a snapshot younger than the locks
-- before it: that makes the counts exact, and is why nothing is decided in a transaction that keeps
-- its first snapshot. For the same reason its times are those of the clock. Joins are nested loops
-- over indexes, because statistics of these tables are not to be trusted, and what has the order that
-- is asked for goes before another index and a sort. For the same reason what may be a hash of a whole
-- table whatever is set (EXISTS beside OR, or as a column) is a subquery of one value, and a table that
-- is to be looked into for each row is one with OFFSET 0. Of home and jit see wake.sql.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_settle_v1(touched bigint[], levels integer)
RETURNS TABLE (
    batch_id bigint, is_missed boolean, goes_on boolean, unfinished bigint, queue_name text
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET enable_nestloop = on
AS $body$
#variable_conflict use_column
DECLARE
    todo bigint[] := ARRAY(SELECT DISTINCT one FROM unnest(touched) AS one);
    following bigint[];
    seen bigint[] := '{}';
    held bigint[] := '{}';
    missed bigint[] := '{}';
    paged bigint[] := '{}';
    queues text[] := '{}';
    taken record;
    folded record;
    begun record;
    page record;
    cancel record;
    trees record;
    -- Of jobs that are cancelled, and of elements: each page reads the whole list.
    most_cancelled CONSTANT integer := 1000;
    most_elements CONSTANT integer := 5000;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN QUERY SELECT one, TRUE, FALSE, NULL::bigint, NULL::text FROM unnest(todo) AS one;
        RETURN;
    END IF;
    WHILE cardinality(todo) > 0 LOOP
        IF levels <= 0 THEN
            missed := missed || todo;
            EXIT;
        END IF;
        levels := levels - 1;
        SELECT * INTO taken FROM home.pgjobs_take_batches_v1(todo, held);
        held := held || taken.unsealed;
        SELECT * INTO folded FROM home.pgjobs_fold_changes_v1(
            taken.locked, taken.unsealed
        );
        seen := seen || taken.locked;
        missed := missed || taken.missed;
        IF cardinality(folded.begun) > 0 THEN
            SELECT * INTO begun FROM home.pgjobs_begin_batches_v1(folded.begun);
            queues := queues || begun.queues;
            missed := missed || begun.postponed;
        END IF;
        IF taken.may_have_pages THEN
            SELECT * INTO page FROM home.pgjobs_expand_page_v1(taken.locked, most_elements);
            IF page.batch_id IS NOT NULL THEN
                queues := queues || page.queues;
                paged := paged || page.batch_id;
            END IF;
        END IF;
        EXIT WHEN folded.changed = 0;
        following := '{}';
        IF folded.may_cancel THEN
            following := ARRAY(
                SELECT home.pgjobs_carry_cancels_v1(folded.stopped, folded.failing)
            );
            SELECT * INTO cancel FROM home.pgjobs_cancel_page_v1(taken.locked, most_cancelled);
            IF cancel.jobs > 0 THEN
                paged := paged || cancel.batches;
            ELSE
                missed := missed || cancel.batches;
            END IF;
        END IF;
        IF cardinality(folded.resumed) > 0 THEN
            missed := missed || ARRAY(SELECT home.pgjobs_unask_jobs_v1(folded.resumed));
        END IF;
        IF folded.may_reopen THEN
            following := following
                || ARRAY(SELECT home.pgjobs_reopen_batches_v1(taken.locked, folded.reopening))
                || ARRAY(SELECT home.pgjobs_reopen_trees_v1(taken.locked, folded.growing));
        END IF;
        IF folded.has_parts THEN
            following := following || ARRAY(SELECT home.pgjobs_seal_parts_v1(taken.locked));
        END IF;
        following := following || ARRAY(SELECT home.pgjobs_complete_batches_v1(taken.locked));
        SELECT * INTO trees FROM home.pgjobs_complete_trees_v1(taken.locked);
        following := following || trees.owners;
        queues := queues || trees.queues;
        todo := ARRAY(
            SELECT DISTINCT one FROM unnest(following) AS one WHERE one <> ALL (missed || paged)
        );
    END LOOP;
    RETURN QUERY
    SELECT DISTINCT one, TRUE, FALSE, NULL::bigint, NULL::text FROM unnest(missed) AS one;
    RETURN QUERY
    SELECT DISTINCT one, FALSE, TRUE, NULL::bigint, NULL::text FROM unnest(paged) AS one;
    RETURN QUERY
    SELECT
        batch.id, FALSE, FALSE,
        CASE
            WHEN batch.sealed_at IS NOT NULL
                THEN batch.jobs - batch.successful - batch.failed - batch.cancelled
        END,
        NULL::text
    FROM home.pgjobs_batch AS batch
    WHERE batch.id = ANY (seen) AND batch.completed_at IS NULL;
    RETURN QUERY
    SELECT DISTINCT NULL::bigint, FALSE, FALSE, NULL::bigint, one FROM unnest(queues) AS one;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
