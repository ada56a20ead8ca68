-- Take a watch, or wait for it, and say whether somebody asks something of the worker.
-- Parameters: id bigint (the worker); watch bigint; milliseconds, silent_seconds integer
--     (how long to wait, and after how long the server ends a session that has it and is silent)
-- Returns: was it taken; is the worker to be quiet or to stop?
-- Locks: an advisory lock of the session
-- Index: none
SELECT
    pgjobs_watch_v1(
        %(watch)s::bigint, %(milliseconds)s::integer, %(silent_seconds)s::integer
    ),
    EXISTS (
        SELECT FROM pgjobs_worker AS worker
        WHERE
            worker.id = %(id)s::bigint
            AND (worker.quiet_requested_at IS NOT NULL OR worker.stop_requested_at IS NOT NULL)
    )
