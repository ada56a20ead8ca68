-- A job that was asked for later is not ready yet: `due_at` is the engine's time, `run_after` what
-- was asked for. The condition keeps jobs without a time from calling the function.
CREATE FUNCTION pgjobs_postpone_v1() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF NEW.run_after > statement_timestamp() THEN
        NEW.due_at := NEW.run_after;
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER pgjobs_job_postpone BEFORE INSERT ON pgjobs_job_live
    FOR EACH ROW WHEN (NEW.status = 'ready' AND NEW.due_at IS NULL AND NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgjobs_postpone_v1();
