-- Take a watch, an advisory lock of the session, and wait for it at most so many *milliseconds*.
--
-- A session that has it is given it again. While it has it, the server ends it if it is silent for
-- *silent_seconds*: its process is frozen, and others are to have the watch.
--
-- A function, because a lock_timeout that is told to the client is an error in the server's log, and
-- a worker that has nothing to do waits in vain each second.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_watch_v1(
    watch bigint, milliseconds integer, silent_seconds integer
) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off AS $body$
BEGIN
    IF NOT pg_try_advisory_lock(watch) THEN
        IF milliseconds <= 0 THEN
            RETURN FALSE;
        END IF;
        PERFORM set_config('lock_timeout', milliseconds::text, TRUE);
        PERFORM pg_advisory_lock(watch);
    END IF;
    PERFORM set_config('idle_session_timeout', silent_seconds::text || 's', FALSE);
    RETURN TRUE;
EXCEPTION
    WHEN lock_not_available THEN
        RETURN FALSE;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
