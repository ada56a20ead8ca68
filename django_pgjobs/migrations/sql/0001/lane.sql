-- The lane of a job: its concurrency key and its rate limits, NULL if it has neither.
--
-- It parts the jobs that the claim has to think about from all others, so neither kind pays for
-- the other. Always computed, whatever a statement wrote there: a job with a key and no lane
-- would be claimed past its limits. Not a generated column: PostgreSQL 16 to 18 parse its
-- expression again for every row of an UPDATE that sets nothing it is made of, a claim or a
-- finish for instance. On the live partition only: a finished job that is requeued is an INSERT
-- there.
CREATE FUNCTION pgjobs_lane_v1() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    NEW.lane := CASE
        WHEN NEW.concurrency_key IS NOT NULL OR NEW.rate_limit_keys IS NOT NULL
            THEN COALESCE(NEW.concurrency_key, '') || E'\n' || COALESCE(NEW.rate_limit_keys, '')
    END;
    RETURN NEW;
END
$body$;

-- The condition keeps plain jobs from calling the function.
CREATE TRIGGER pgjobs_job_lane
    BEFORE INSERT OR UPDATE OF concurrency_key, rate_limit_keys, lane ON pgjobs_job_live
    FOR EACH ROW WHEN (
        NEW.concurrency_key IS NOT NULL OR NEW.rate_limit_keys IS NOT NULL
        OR NEW.lane IS NOT NULL
    )
    EXECUTE FUNCTION pgjobs_lane_v1();
