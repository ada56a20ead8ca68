-- Let go of the jobs that wait for some of *ended*, as far as those are finished or gone: what was
-- cancelled for a failure before it has ended, too. Return the queues of those that may run now.
--
-- One call looks at *most* dependencies: those of each predecessor in the order of the jobs, behind
-- the job in *behind* if there is one in its place. If some are left it returns with whom to go on,
-- and behind which job (predecessor_id, job_id; no queue). The predecessor it came to last is behind
-- the others then, so that one with many dependants does not keep these. Nobody has to go on: what
-- is left is found by the worker's sweep. So is a row that stays locked for half a second, and what
-- was not done after 5 seconds, so that a finish never waits for long.
--
-- A function, because the trigger in recheck.sql needs it as well as every statement that finishes
-- jobs, in the transaction of whoever enqueues. Whoever changes the dependencies of a waiting job
-- holds the lock of its row, taken in the order of the ids. Sequential scans are off because
-- statistics of these tables are not to be trusted; of home and jit see wake.sql.
-- `enable_seqscan = off` gives plans a cost at which PostgreSQL before 18 compiles them: a cancel
-- with three dependants took 40 ms instead of 3.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_resolve_v1(
    ended bigint[], most integer, behind bigint[] DEFAULT '{}'
) RETURNS TABLE (queue_name text, predecessor_id bigint, job_id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET lock_timeout = '500ms' SET jit = off
AS $body$
#variable_conflict use_column
DECLARE
    edges bigint[];
    predecessors bigint[];
    waiting bigint[];
    locked bigint[];
    cancelled bigint[];
    queues text[];
    cancelled_queues text[];
    cancelled_paths text[];
    jobs bigint[];
    places bigint[];
    is_patient boolean := TRUE;
    time_is_up CONSTANT timestamptz := clock_timestamp() + interval '5 s';
BEGIN
    -- Nobody waits for most jobs: one probe. Of a column that no other index has, else the planner
    -- might read all of that.
    IF behind = '{}' AND (
        SELECT edge.id
        FROM home.pgjobs_dependency AS edge
        WHERE edge.predecessor_id = ANY (ended)
        LIMIT 1
    ) IS NULL THEN
        RETURN;
    END IF;
    LOOP
        EXIT WHEN clock_timestamp() >= time_is_up;
        IF most <= 0 THEN
            RETURN QUERY
            SELECT NULL::text, left_over.id, COALESCE(left_over.job_id, '-9223372036854775808')
            FROM unnest(ended, behind) AS left_over (id, job_id);
            RETURN;
        END IF;
        BEGIN
            SELECT
                array_agg(page.id), array_agg(page.predecessor_id), array_agg(page.job_id),
                array_agg(page.place)
            INTO edges, predecessors, jobs, places
            FROM (
                SELECT edge.id, one.id AS predecessor_id, edge.job_id, one.place
                FROM unnest(ended, behind) WITH ORDINALITY AS one (id, job_id, place)
                CROSS JOIN LATERAL (
                    SELECT dependency.id, dependency.job_id
                    FROM home.pgjobs_dependency AS dependency
                    -- Told as a row, and in an order that one index alone has.
                    WHERE
                        (dependency.predecessor_id, dependency.job_id)
                        > (one.id, COALESCE(one.job_id, '-9223372036854775808'))
                        AND dependency.predecessor_id <= one.id
                        AND (
                            SELECT job.id
                            FROM home.pgjobs_job_live AS job
                            WHERE job.id = one.id AND job.status IN ('ready', 'running')
                            LIMIT 1
                        ) IS NULL
                    ORDER BY dependency.predecessor_id, dependency.job_id
                    LIMIT most
                ) AS edge
                LIMIT most
            ) AS page;
            IF edges IS NULL THEN
                RETURN;
            END IF;
            waiting := ARRAY(
                SELECT job.id
                FROM home.pgjobs_job_live AS job
                WHERE job.id = ANY (jobs) AND job.status = 'ready'
            );
            IF is_patient THEN
                PERFORM FROM home.pgjobs_job_live AS job
                WHERE job.id = ANY (waiting) AND job.status = 'ready'
                ORDER BY job.id
                FOR UPDATE;
            END IF;
            locked := ARRAY(
                SELECT job.id
                FROM home.pgjobs_job_live AS job
                WHERE job.id = ANY (waiting) AND job.status = 'ready'
                ORDER BY job.id
                FOR UPDATE SKIP LOCKED
            );
            WITH verdict AS (
                SELECT
                    edge.id, edge.job_id, edge.predecessor_id, edge.after_failure,
                    COALESCE(predecessor.status <> 'successful', FALSE) AS has_failed,
                    job.hold,
                    edge.after_failure = 'hold' AND COALESCE(
                        predecessor.status <> 'successful',
                        job.hold = 'predecessor failed', FALSE
                    ) AS holds
                FROM home.pgjobs_dependency AS edge
                LEFT JOIN unnest(waiting) AS candidate (id) ON candidate.id = edge.job_id
                LEFT JOIN (
                    SELECT locked_job.id, locked_job.hold
                    FROM home.pgjobs_job_live AS locked_job
                    WHERE locked_job.id = ANY (locked) AND locked_job.status = 'ready'
                ) AS job ON job.id = edge.job_id
                LEFT JOIN (
                    SELECT finished.id, finished.status
                    FROM home.pgjobs_job_finished AS finished
                    WHERE finished.id = ANY (predecessors)
                ) AS predecessor ON predecessor.id = edge.predecessor_id
                -- Locked by us, or there is nobody any more who waits.
                WHERE
                    edge.id = ANY (edges)
                    AND (job.id IS NOT NULL OR candidate.id IS NULL)
            ),
            effect AS (
                SELECT
                    verdict.job_id,
                    count(*) FILTER (WHERE NOT verdict.holds) AS steps,
                    bool_or(verdict.holds) AS is_held,
                    min(verdict.predecessor_id) FILTER (
                        WHERE verdict.has_failed AND verdict.after_failure = 'cancel'
                    ) AS culprit_id
                FROM verdict
                WHERE NOT (verdict.holds AND verdict.hold = 'predecessor failed')
                GROUP BY verdict.job_id
            ),
            removed AS (
                DELETE FROM home.pgjobs_dependency AS edge
                WHERE edge.id = ANY (ARRAY(
                    SELECT verdict.id FROM verdict WHERE NOT verdict.holds
                    UNION
                    SELECT other.id
                    FROM home.pgjobs_dependency AS other
                    WHERE other.job_id = ANY (ARRAY(
                        SELECT effect.job_id
                        FROM effect
                        WHERE effect.culprit_id IS NOT NULL
                    ))
                ))
            ),
            changed AS (
                UPDATE home.pgjobs_job AS job
                SET
                    status = CASE
                        WHEN effect.culprit_id IS NULL THEN job.status ELSE 'cancelled'
                    END,
                    hold = CASE
                        WHEN effect.culprit_id IS NOT NULL THEN NULL
                        WHEN effect.is_held THEN 'predecessor failed'
                        WHEN job.waits_for > effect.steps THEN job.hold
                    END,
                    ready_at = CASE
                        WHEN effect.is_held OR job.waits_for > effect.steps THEN NULL
                        WHEN job.due_at > statement_timestamp()
                            THEN LEAST(job.due_at, '9999-12-30')
                        ELSE statement_timestamp()
                    END,
                    waits_for = CASE
                        WHEN effect.culprit_id IS NOT NULL THEN 0
                        ELSE GREATEST(job.waits_for - effect.steps, 0)
                    END,
                    claim = GREATEST(job.claim, 0) % 9000000000000000000
                        + (effect.culprit_id IS NOT NULL)::integer,
                    cancel_requested_at = CASE
                        WHEN effect.culprit_id IS NOT NULL THEN statement_timestamp()
                    END,
                    finished_at = CASE
                        WHEN effect.culprit_id IS NOT NULL THEN statement_timestamp()
                    END,
                    note = CASE
                        WHEN effect.culprit_id IS NULL THEN job.note
                        ELSE 'cancelled: job ' || effect.culprit_id || ', which it waited for, failed'
                    END
                FROM effect
                WHERE
                    job.id = effect.job_id AND job.id = ANY (locked)
                    AND job.status IN ('ready', 'running') AND job.status <> 'running'
                    AND job.hold IS NOT NULL
                RETURNING
                    job.id, job.status, job.hold, job.queue_name, job.task_path, job.batch_id
            ),
            noted AS (
                INSERT INTO home.pgjobs_batch_change (batch_id, cancelled)
                SELECT changed.batch_id, count(*)
                FROM changed
                WHERE changed.batch_id IS NOT NULL AND changed.status = 'cancelled'
                GROUP BY changed.batch_id
            )
            SELECT
                array_agg(changed.id) FILTER (WHERE changed.status = 'cancelled'),
                array_agg(DISTINCT changed.queue_name) FILTER (
                    WHERE changed.status = 'ready' AND changed.hold IS NULL
                ),
                array_agg(changed.queue_name) FILTER (WHERE changed.status = 'cancelled'),
                array_agg(changed.task_path) FILTER (WHERE changed.status = 'cancelled')
            INTO cancelled, queues, cancelled_queues, cancelled_paths
            FROM changed;
            IF cancelled IS NOT NULL THEN
                PERFORM home.pgjobs_note_cancels_v1(cancelled_queues, cancelled_paths);
            END IF;
            most := most - cardinality(edges);
            IF most > 0 THEN
                ended := cancelled;
                behind := '{}';
            ELSE
                SELECT
                    array_agg(rest.id ORDER BY rest.turn, rest.place),
                    array_agg(rest.job_id ORDER BY rest.turn, rest.place)
                INTO ended, behind
                FROM (
                    SELECT one.id, NULL::bigint AS job_id, 1 AS turn, 0::bigint AS place
                    FROM unnest(cancelled) AS one (id)
                    UNION ALL
                    SELECT
                        one.id,
                        CASE WHEN one.place = final.place THEN final.job_id ELSE one.job_id END,
                        CASE WHEN one.place = final.place THEN 3 ELSE 2 END,
                        one.place
                    FROM unnest(ended, behind) WITH ORDINALITY AS one (id, job_id, place)
                    JOIN (
                        SELECT entry.place, entry.job_id
                        FROM unnest(places, jobs) AS entry (place, job_id)
                        ORDER BY entry.place DESC, entry.job_id DESC
                        LIMIT 1
                    ) AS final ON one.place >= final.place
                ) AS rest;
            END IF;
        EXCEPTION
            WHEN lock_not_available OR deadlock_detected THEN
                is_patient := FALSE;
                CONTINUE;
            WHEN serialization_failure THEN
                -- A row was moved to the other partition while we wanted its lock. A
                -- transaction with a snapshot of its own cannot look again.
                EXIT WHEN current_setting('transaction_isolation') <> 'read committed';
                CONTINUE;
        END;
        RETURN QUERY SELECT unnest(queues), NULL::bigint, NULL::bigint;
        PERFORM pg_notify('pgjobs', released)
        FROM unnest(queues) AS released
        WHERE EXISTS (SELECT FROM home.pgjobs_worker WHERE listening);
        EXIT WHEN ended IS NULL;
    END LOOP;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
