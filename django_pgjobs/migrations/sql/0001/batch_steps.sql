-- What follows a batch becomes jobs: of steps, of the end of batches, and of long results, in pages.
--
-- A step is a JSON object with the columns of a job, and *delay* and *expires_in* in seconds.
-- pgjobs_settle_v1 calls these functions, and its settings hold in them. Of home see wake.sql.
DO $do$
BEGIN
    EXECUTE replace($create$
-- Make jobs of steps: one for each, with its *args*, in its batch (NULL: in none), from the result
-- of the job in *sources* (0: of none). Return the queues.
CREATE FUNCTION home.pgjobs_start_v1(
    steps json[], args json[], batches bigint[], sources bigint[]
)
RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    RETURN QUERY
    WITH inserted AS (
        INSERT INTO home.pgjobs_job (
            task_path, queue_name, backend, priority, max_attempts, timeout, correlation_id, tags,
            metadata, subject, max_losses, on_failure, is_declared, is_async, args, kwargs,
            batch_id, source_id, run_after, expires_at
        )
        SELECT
            job.task_path, job.queue_name, job.backend, job.priority, job.max_attempts,
            job.timeout, job.correlation_id, job.tags, job.metadata, job.subject, job.max_losses,
            job.on_failure, job.is_declared, job.is_async, start.args, job.kwargs, start.batch_id,
            COALESCE(start.source_id, 0),
            COALESCE(
                job.run_after,
                statement_timestamp() + make_interval(
                    secs => (start.step ->> 'delay')::double precision
                )
            ),
            COALESCE(
                job.expires_at,
                statement_timestamp() + make_interval(
                    secs => (start.step ->> 'expires_in')::double precision
                )
            )
        FROM unnest(steps, args, batches, sources) AS start (step, args, batch_id, source_id)
        CROSS JOIN LATERAL json_populate_record(NULL::home.pgjobs_job, start.step) AS job
        RETURNING pgjobs_job.queue_name
    )
    SELECT DISTINCT inserted.queue_name::text FROM inserted;
END
$body$;

-- Run the finished jobs of all results of batches again: each result is replaced. Return their batches,
-- and the queues. Those that somebody else has locked are left.
CREATE FUNCTION home.pgjobs_run_again_v1(former bigint[], OUT again bigint[], OUT queues text[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    WITH taken AS MATERIALIZED (
        SELECT job.id, job.status, job.batch_id
        FROM home.pgjobs_job_finished AS job
        WHERE job.batch_id = ANY (former) AND job.source_id = 0
        FOR UPDATE SKIP LOCKED
    ),
    moved AS (
        UPDATE home.pgjobs_job AS job
        SET
            status = 'ready',
            claim = GREATEST(job.claim, 0) % 9000000000000000000 + 1,
            attempts = 0,
            lost_count = 0,
            interruptions = 0,
            worker_id = NULL,
            worker_ids = '{}',
            started_at = NULL,
            last_attempted_at = NULL,
            finished_at = NULL,
            cancel_requested_at = NULL,
            result = NULL,
            progress = NULL,
            due_at = NULL,
            expires_at = NULL,
            ready_at = statement_timestamp(),
            note = 'run again: what it follows is complete again'
        WHERE
            job.id = ANY (ARRAY(SELECT taken.id FROM taken))
            -- Not IN: by that the planner may take the index of ends, and read all of it.
            AND job.status <> 'ready' AND job.status <> 'running'
        RETURNING job.id, job.batch_id, job.queue_name
    ),
    taken_back AS (
        UPDATE home.pgjobs_batch AS batch
        SET
            successful = batch.successful - tally.successful,
            failed = batch.failed - tally.failed,
            cancelled = batch.cancelled - tally.cancelled
        FROM (
            SELECT
                taken.batch_id,
                count(*) FILTER (WHERE taken.status = 'successful') AS successful,
                count(*) FILTER (WHERE taken.status = 'failed') AS failed,
                count(*) FILTER (WHERE taken.status = 'cancelled') AS cancelled
            FROM taken
            WHERE taken.id IN (SELECT moved.id FROM moved)
            GROUP BY taken.batch_id
        ) AS tally
        WHERE batch.id = tally.batch_id AND batch.id = ANY (former)
    )
    SELECT
        COALESCE(array_agg(moved.batch_id), '{}'),
        COALESCE(array_agg(DISTINCT moved.queue_name), '{}')
    INTO again, queues
    FROM moved;
END
$body$;

-- Of batches whose job of all results has been made before, and was not run again: lock those that wait
-- to run, until this commits, so that they read what is new (*waiting*). Return also those of which
-- one is about to run or runs (*running*), and those of which one has finished and is locked
-- (*postponed*).
CREATE FUNCTION home.pgjobs_find_former_v1(
    former bigint[], OUT waiting bigint[], OUT running bigint[], OUT postponed bigint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
BEGIN
    BEGIN
        waiting := ARRAY(
            SELECT job.batch_id
            FROM unnest(former) AS batch (id)
            CROSS JOIN LATERAL (
                SELECT live.batch_id
                FROM home.pgjobs_job_live AS live
                WHERE
                    live.status = 'ready' AND live.batch_id >= batch.id
                    AND live.batch_id <= batch.id AND live.source_id = 0
                -- An order that the index of batches alone has.
                ORDER BY live.batch_id, live.id
                LIMIT 1
                FOR UPDATE SKIP LOCKED
            ) AS job
        );
    EXCEPTION WHEN serialization_failure THEN
        -- One was moved to the other partition while we wanted its lock.
        waiting := '{}';
    END;
    -- In one look: a job that finishes meanwhile is in one of the partitions.
    SELECT
        COALESCE(array_agg(found.batch_id) FILTER (WHERE found.is_live), '{}'),
        COALESCE(array_agg(found.batch_id) FILTER (WHERE NOT found.is_live), '{}')
    INTO running, postponed
    FROM (
        (
            -- In an order that the index of running jobs alone has.
            SELECT job.batch_id, TRUE AS is_live
            FROM home.pgjobs_job_live AS job
            WHERE job.status = 'running' AND job.batch_id = ANY (former) AND job.source_id = 0
            ORDER BY job.worker_id, job.id
        )
        UNION ALL
        SELECT job.batch_id, TRUE
        FROM unnest(former) AS batch (id)
        CROSS JOIN LATERAL (
            SELECT live.batch_id
            FROM home.pgjobs_job_live AS live
            WHERE
                live.status = 'ready' AND live.batch_id >= batch.id
                AND live.batch_id <= batch.id AND live.source_id = 0
            ORDER BY live.batch_id, live.id
            LIMIT 1
        ) AS job
        UNION ALL
        SELECT job.batch_id, FALSE
        FROM home.pgjobs_job_finished AS job
        WHERE job.batch_id = ANY (former) AND job.source_id = 0
    ) AS found
    WHERE found.batch_id <> ALL (waiting);
END
$body$;

-- Let the job of each of the batches run whose predecessors are all complete: it reads their results
-- itself. One that has run before is run again, one that waits is left to run, and one that runs is
-- run again when it has finished. Return the queues, and those of the batches that are to be looked
-- at again, which is noted: somebody has locked their job.
CREATE FUNCTION home.pgjobs_begin_batches_v1(
    begun bigint[], OUT queues text[], OUT postponed bigint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
DECLARE
    former bigint[] := ARRAY(
        SELECT batch.id
        FROM home.pgjobs_batch AS batch
        WHERE batch.id = ANY (begun) AND batch.jobs > 0
    );
    again bigint[];
    found record;
BEGIN
    queues := '{}';
    postponed := '{}';
    IF cardinality(former) > 0 THEN
        SELECT run.again, run.queues INTO again, queues
        FROM home.pgjobs_run_again_v1(former) AS run;
        SELECT * INTO found FROM home.pgjobs_find_former_v1(
            ARRAY(SELECT one FROM unnest(former) AS one WHERE one <> ALL (again))
        );
        postponed := found.postponed;
        UPDATE home.pgjobs_batch AS batch
        SET runs_again = batch.id = ANY (found.running)
        WHERE batch.id = ANY (former) AND batch.runs_again <> (batch.id = ANY (found.running));
        -- They have nothing to do but to be looked at once more.
        INSERT INTO home.pgjobs_batch_change (batch_id, predecessors)
        SELECT one, step
        FROM unnest(postponed) AS one
        CROSS JOIN (VALUES (1), (-1)) AS both_ways (step);
        begun := ARRAY(
            SELECT one
            FROM unnest(begun) AS one
            WHERE one <> ALL (again || found.waiting || found.running || found.postponed)
        );
    END IF;
    queues := queues || ARRAY(
        SELECT started
        FROM (
            SELECT
                array_agg(batch.step ORDER BY batch.id) AS steps,
                array_agg(
                    CASE
                        WHEN batch.follows = 'gather' THEN json_build_object(
                            'results_of', ARRAY(
                                SELECT edge.waits_for
                                FROM home.pgjobs_batch_edge AS edge
                                WHERE edge.batch_id = batch.id
                                ORDER BY edge.place, edge.waits_for
                            ),
                            'more', batch.step -> 'args'
                        )
                        ELSE batch.step -> 'args'
                    END
                    ORDER BY batch.id
                ) AS args,
                array_agg(batch.id ORDER BY batch.id) AS ids
            FROM home.pgjobs_batch AS batch
            WHERE batch.id = ANY (begun)
        ) AS beginning
        CROSS JOIN LATERAL home.pgjobs_start_v1(
            beginning.steps, beginning.args, beginning.ids, NULL::bigint[]
        ) AS started
    );
    UPDATE home.pgjobs_batch AS batch
    SET jobs = batch.jobs + 1
    WHERE batch.id = ANY (begun);
END
$body$;

-- Make jobs of one page of the elements of one result that is noted for one of the batches *locked*.
-- The larger the call the smaller the page, which is in memory. Return the batch, NULL if there is no
-- such result, and the queues. The rest is for the next time.
-- What is noted for a cancelled batch is kept, and taken up again if that is not cancelled any more.
--
-- A job that runs again replaces its result, whose page is left until that has finished: whoever
-- finishes it relies on the page. The lock of a finished job keeps it from being requeued in between.
-- Where somebody else has locked the job or the page, all of that batch is left until it is listed
-- again, and the next one has its turn.
CREATE FUNCTION home.pgjobs_expand_page_v1(
    locked bigint[], page_size integer, OUT batch_id bigint, OUT queues text[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $body$
#variable_conflict use_column
DECLARE
    paging home.pgjobs_batch_page;
    is_cancelled boolean;
    is_locked boolean;
    elements json[];
BEGIN
    FOR paging.batch_id, paging.source_id, paging.position, paging.is_kept, is_cancelled, page_size IN
        SELECT
            page.batch_id, page.source_id, page.position, page.is_kept, batch.is_cancelled,
            GREATEST(page_size / batch.weight, 1)
        FROM (
            SELECT
                follower.id, follower.cancel_requested_at IS NOT NULL AS is_cancelled,
                octet_length(follower.step::text) / 4096 + 1 AS weight
            FROM home.pgjobs_batch AS follower
            WHERE follower.id = ANY (locked)
        ) AS batch
        CROSS JOIN LATERAL (
            (
                SELECT fresh.batch_id, fresh.source_id, fresh.position, fresh.is_kept
                FROM home.pgjobs_batch_page AS fresh
                WHERE
                    fresh.batch_id = batch.id AND NOT fresh.is_kept
                    -- As an EXISTS the planner might read all jobs.
                    AND (batch.is_cancelled OR (
                        SELECT job.id
                        FROM home.pgjobs_job_live AS job
                        WHERE job.id = fresh.source_id
                        LIMIT 1
                    ) IS NULL)
                ORDER BY fresh.batch_id, fresh.is_kept, fresh.source_id
                LIMIT 1
            )
            UNION ALL
            (
                SELECT kept.batch_id, kept.source_id, kept.position, kept.is_kept
                FROM home.pgjobs_batch_page AS kept
                WHERE kept.batch_id = batch.id AND kept.is_kept AND NOT batch.is_cancelled
                ORDER BY kept.batch_id, kept.is_kept, kept.source_id
                LIMIT 1
            )
            LIMIT 1
        ) AS page
        ORDER BY page.batch_id
    LOOP
        PERFORM FROM home.pgjobs_batch_page AS page
        WHERE page.batch_id = paging.batch_id AND page.source_id = paging.source_id
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        batch_id := paging.batch_id;
        EXIT WHEN is_cancelled OR paging.is_kept;
        BEGIN
            PERFORM FROM home.pgjobs_job_finished AS job
            WHERE job.id = paging.source_id AND job.status <> 'ready' AND job.status <> 'running'
            FOR KEY SHARE SKIP LOCKED;
            is_locked := FOUND;
        EXCEPTION WHEN serialization_failure THEN
            -- It was moved to the other partition while we wanted its lock.
            is_locked := FALSE;
        END;
        EXIT WHEN is_locked OR NOT EXISTS (
            SELECT FROM home.pgjobs_job AS job WHERE job.id = paging.source_id
        );
        batch_id := NULL;
    END LOOP;
    IF batch_id IS NULL THEN
        RETURN;
    END IF;
    IF is_cancelled OR paging.is_kept THEN
        UPDATE home.pgjobs_batch_page AS page
        SET is_kept = is_cancelled
        WHERE page.batch_id = paging.batch_id AND page.source_id = paging.source_id;
        INSERT INTO home.pgjobs_batch_change (batch_id, predecessors)
        VALUES (paging.batch_id, CASE WHEN is_cancelled THEN -1 ELSE 1 END);
        RETURN;
    END IF;
    elements := ARRAY(
        SELECT element.value
        FROM home.pgjobs_job_finished AS job
        CROSS JOIN home.pgjobs_batch AS batch
        CROSS JOIN LATERAL (
            SELECT batch.follows = 'each item' AND json_typeof(job.result) = 'array' AS is_so
        ) AS list
        CROSS JOIN LATERAL (
            SELECT one.value, one.place
            FROM json_array_elements(
                CASE WHEN list.is_so THEN job.result ELSE '[]' END
            ) WITH ORDINALITY AS one (value, place)
            UNION ALL
            SELECT COALESCE(job.result, 'null'), 1
            WHERE
                list.is_so IS NOT TRUE
                AND (job.result IS NOT NULL OR batch.follows = 'each')
        ) AS element
        WHERE
            job.id = paging.source_id AND job.status <> 'failed' AND job.status <> 'cancelled'
            AND batch.id = paging.batch_id AND element.place > paging.position
        ORDER BY element.place
        LIMIT page_size
    );
    queues := ARRAY(
        SELECT started
        FROM (
            SELECT
                array_agg(batch.step) AS steps,
                array_agg(
                    concat('[', one.value, batch.step ->> 'more', ']')::json
                    ORDER BY one.place
                ) AS args,
                array_agg(batch.id) AS ids,
                array_agg(paging.source_id) AS sources
            FROM home.pgjobs_batch AS batch
            CROSS JOIN LATERAL unnest(elements) WITH ORDINALITY AS one (value, place)
            WHERE
                batch.id = paging.batch_id
                AND NOT (batch.skips_none AND json_typeof(one.value) = 'null')
        ) AS made
        CROSS JOIN LATERAL home.pgjobs_start_v1(
            made.steps, made.args, made.ids, made.sources
        ) AS started
    );
    UPDATE home.pgjobs_batch AS batch
    SET jobs = batch.jobs + (
        SELECT count(*)
        FROM unnest(elements) AS one (value)
        WHERE NOT (batch.skips_none AND json_typeof(one.value) = 'null')
    )
    WHERE batch.id = paging.batch_id;
    IF cardinality(elements) < page_size THEN
        DELETE FROM home.pgjobs_batch_page AS page
        WHERE page.batch_id = paging.batch_id AND page.source_id = paging.source_id;
        INSERT INTO home.pgjobs_batch_change (batch_id, predecessors)
        VALUES (paging.batch_id, -1);
    ELSE
        UPDATE home.pgjobs_batch_page AS page
        SET position = paging.position + page_size
        WHERE page.batch_id = paging.batch_id AND page.source_id = paging.source_id;
    END IF;
END
$body$;
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
