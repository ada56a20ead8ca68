-- Take a watch, or wait for it.
-- Parameters: watch bigint; milliseconds, silent_seconds integer (how long to wait, and after how
--     long the server ends a session that has it and is silent)
-- Returns: was it taken?
-- Locks: an advisory lock of the session
-- Index: none
SELECT pgjobs_watch_v1(
    %(watch)s::bigint, %(milliseconds)s::integer, %(silent_seconds)s::integer
)
