-- Tell workers that listen of new jobs: one notification per statement and queue.
--
-- Busy workers do not listen. A NOTIFY in a transaction takes a lock of the whole database at its
-- commit, so none is sent that nobody waits for.
--
-- Like every function that reads our tables, it names them with the schema of the migration (home
-- stands for it) and searches pg_catalog only, so that a session with temporary tables or
-- operators of its own cannot stand in between; and it compiles nothing: it looks at a few rows.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_wake_v1() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off AS $body$
BEGIN
    PERFORM pg_notify('pgjobs', enqueued.queue_name)
    FROM (SELECT DISTINCT queue_name FROM inserted) AS enqueued
    WHERE EXISTS (SELECT FROM home.pgjobs_worker WHERE listening);
    RETURN NULL;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;

CREATE TRIGGER pgjobs_job_wake AFTER INSERT ON pgjobs_job
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION pgjobs_wake_v1();
-- INSERT ... ON CONFLICT has to name the partition that the unique index is on.
CREATE TRIGGER pgjobs_job_live_wake AFTER INSERT ON pgjobs_job_live
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION pgjobs_wake_v1();
