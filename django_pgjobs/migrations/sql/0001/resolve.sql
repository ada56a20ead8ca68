-- Let go of the jobs that wait for some of *ended*, as far as those are finished or gone: what was
-- cancelled for a failure before it has ended, too. Return the queues of those that may run now.
--
-- A function, because the trigger in recheck.sql needs it as well as every statement that finishes
-- jobs, in the transaction of whoever enqueues. Whoever changes the dependencies of a waiting job
-- holds the lock of its row, taken in the order of the ids. A row that stays locked for half a
-- second is left to the worker's sweep, so that a finish never waits for long; so is the rest of a
-- cascade that takes 5 seconds. Sequential scans are off because statistics of these tables are not
-- to be trusted; of home and jit see wake.sql. `enable_seqscan = off` gives plans a cost at which
-- PostgreSQL before 18 compiles them: a cancel with three dependants took 40 ms instead of 3.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_resolve_v1(ended bigint[]) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET lock_timeout = '500ms' SET jit = off
AS $body$
DECLARE
    predecessors bigint[];
    waiting bigint[];
    locked bigint[];
    queues text[];
    is_patient boolean := TRUE;
    time_is_up timestamptz;
BEGIN
    LOOP
        predecessors := ARRAY(
            SELECT DISTINCT edge.predecessor_id
            FROM home.pgjobs_dependency AS edge
            WHERE edge.predecessor_id = ANY (ended)
        );
        EXIT WHEN predecessors = '{}';
        time_is_up := COALESCE(time_is_up, clock_timestamp() + interval '5 s');
        EXIT WHEN clock_timestamp() >= time_is_up;
        BEGIN
            predecessors := ARRAY(
                SELECT unnest(predecessors)
                EXCEPT
                SELECT job.id
                FROM home.pgjobs_job_live AS job
                WHERE job.id = ANY (predecessors) AND job.status IN ('ready', 'running')
            );
            EXIT WHEN predecessors = '{}';
            waiting := ARRAY(
                SELECT DISTINCT edge.job_id
                FROM home.pgjobs_dependency AS edge
                WHERE edge.predecessor_id = ANY (predecessors)
            );
            waiting := ARRAY(
                SELECT job.id
                FROM home.pgjobs_job_live AS job
                WHERE job.id = ANY (waiting) AND job.status = 'ready'
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
                    edge.predecessor_id = ANY (predecessors)
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
                        ELSE 'cancelled: job ' || effect.culprit_id || ' before it failed'
                    END
                FROM effect
                WHERE
                    job.id = effect.job_id AND job.id = ANY (locked)
                    AND job.status IN ('ready', 'running') AND job.status <> 'running'
                    AND job.hold IS NOT NULL
                RETURNING job.id, job.status, job.hold, job.queue_name
            )
            SELECT
                array_agg(changed.id) FILTER (WHERE changed.status = 'cancelled'),
                array_agg(DISTINCT changed.queue_name) FILTER (
                    WHERE changed.status = 'ready' AND changed.hold IS NULL
                )
            INTO ended, queues
            FROM changed;
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
        RETURN QUERY SELECT unnest(queues);
        PERFORM pg_notify('pgjobs', queue_name)
        FROM unnest(queues) AS queue_name
        WHERE EXISTS (SELECT FROM home.pgjobs_worker WHERE listening);
    END LOOP;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
