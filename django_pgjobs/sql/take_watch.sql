-- Take a slot of a watch, or wait for one, and say whether somebody asks something of the worker.
-- Parameters: id bigint (the worker); first_slot bigint; slots, wanted, milliseconds integer
--     (which slot to wait for if all are taken, and for how long)
-- Returns: slot (from 0 on; NULL: all are taken); is it to be quiet or to stop?
-- Locks: an advisory lock of the session
-- Index: none
SELECT
    pgjobs_watch_v1(
        %(first_slot)s::bigint, %(slots)s::integer, %(wanted)s::integer, %(milliseconds)s::integer
    ),
    EXISTS (
        SELECT FROM pgjobs_worker AS worker
        WHERE
            worker.id = %(id)s::bigint
            AND (worker.quiet_requested_at IS NOT NULL OR worker.stop_requested_at IS NOT NULL)
    )
