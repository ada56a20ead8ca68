-- Look again, at the commit, at the predecessor of a job that was enqueued to wait.
--
-- It may finish after the enqueuing statement looked at it and before the transaction commits;
-- whoever finishes it then does not see that anybody waits. So the commit looks again, and keeps
-- the predecessor from being finished for the instant until the commit is visible. Of home, seqscan
-- and jit see wake.sql and resolve.sql.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_recheck_v1() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $body$
DECLARE
    looks integer := 0;
BEGIN
    LOOP
        BEGIN
            PERFORM FROM home.pgjobs_job_live AS job
            WHERE job.id = NEW.predecessor_id AND job.status IN ('ready', 'running')
            FOR KEY SHARE SKIP LOCKED;
            EXIT WHEN FOUND;
        EXCEPTION WHEN serialization_failure THEN
            EXIT WHEN current_setting('transaction_isolation') <> 'read committed';
        END;
        -- Resolved with another dependency of this transaction, it is gone. While a dump is loaded,
        -- the tables of jobs may be empty yet.
        EXIT WHEN NOT EXISTS (
            SELECT FROM home.pgjobs_dependency AS edge WHERE edge.id = NEW.id
        ) OR NOT EXISTS (
            SELECT FROM home.pgjobs_job_live AS job WHERE job.id = NEW.job_id
        );
        IF NOT EXISTS (
            SELECT FROM home.pgjobs_job_live AS job WHERE job.id = NEW.predecessor_id
        ) THEN
            -- This one and some behind it, whose turn is next; the others of the predecessor may
            -- be many, and are not ours.
            PERFORM FROM home.pgjobs_resolve_v1(
                ARRAY[NEW.predecessor_id], 1000, ARRAY[NEW.job_id - 1]
            );
            EXIT;
        END IF;
        -- Somebody is writing it just now. To wait for its lock while we hold those of
        -- others might be a deadlock. Who waits for us looks for us when we are done.
        looks := looks + 1;
        EXIT WHEN looks > 1000 OR (
            looks % 10 = 0 AND EXISTS (
                SELECT FROM pg_locks
                WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))
            )
        );
        PERFORM pg_sleep(0.002);
    END LOOP;
    RETURN NULL;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;

CREATE CONSTRAINT TRIGGER pgjobs_dependency_recheck AFTER INSERT ON pgjobs_dependency
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pgjobs_recheck_v1();
