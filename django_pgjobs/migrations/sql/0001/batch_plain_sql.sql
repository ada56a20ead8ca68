-- Count a job that plain SQL adds to a batch, or refuse it: without that the batch would be complete
-- too early. Statements of ours count what they add themselves; what they insert is declared, has
-- a source, or has had a claim.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_count_v1() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $body$
BEGIN
    PERFORM FROM home.pgjobs_batch AS batch
    WHERE
        batch.id = NEW.batch_id AND batch.sealed_at IS NULL
        AND NOT EXISTS (
            SELECT FROM home.pgjobs_batch_change AS change
            WHERE change.batch_id = batch.id AND (change.seals OR change.cancels)
        )
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'batch % is sealed, or does not exist', NEW.batch_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pgjobs_batch_is_open',
                HINT = 'Add jobs before the batch is sealed, or from a job of its own.';
    END IF;
    INSERT INTO home.pgjobs_batch_change (batch_id, jobs) VALUES (NEW.batch_id, 1);
    RETURN NULL;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;

CREATE TRIGGER pgjobs_job_count AFTER INSERT ON pgjobs_job_live
    FOR EACH ROW WHEN (
        NEW.batch_id IS NOT NULL AND NEW.source_id IS NULL AND NOT NEW.is_declared AND NEW.claim = 0
    )
    EXECUTE FUNCTION pgjobs_count_v1();
