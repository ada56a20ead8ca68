-- Take one of the slots of a watch, and wait for one if all are taken.
--
-- A slot is a session's advisory lock: *first_slot* and those after it. A session that has one is
-- given it again. If no slot is free it waits for the one *wanted*, at most so many *milliseconds*
-- (0: not at all). Return its number from 0 on, or NULL.
--
-- A function, because a lock_timeout that is told to the client is an error in the server's log, and
-- a worker that has nothing to do waits in vain each second.
DO $do$
BEGIN
    EXECUTE replace($create$
CREATE FUNCTION home.pgjobs_watch_v1(
    first_slot bigint, slots integer, wanted integer, milliseconds integer
) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off AS $body$
BEGIN
    FOR slot IN 0 .. slots - 1 LOOP
        IF pg_try_advisory_lock(first_slot + slot::bigint) THEN
            RETURN slot;
        END IF;
    END LOOP;
    IF milliseconds <= 0 THEN
        RETURN NULL;
    END IF;
    PERFORM set_config('lock_timeout', milliseconds::text, TRUE);
    PERFORM pg_advisory_lock(first_slot + wanted::bigint);
    RETURN wanted;
EXCEPTION
    WHEN lock_not_available THEN
        RETURN NULL;
END
$body$
    $create$, 'home.', quote_ident(current_schema()) || '.');
END
$do$;
