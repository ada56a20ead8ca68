-- Set how long this session waits for a lock, and how long a statement of it may take.
-- Parameters: lock_timeout, statement_timeout text; is_local boolean (only until the transaction
--     ends)
-- Returns: the process id of the session; both timeouts from before
-- Locks: none
-- Index: none
SELECT
    pg_backend_pid(), current_setting('lock_timeout'), current_setting('statement_timeout'),
    set_config('lock_timeout', %(lock_timeout)s::text, %(is_local)s::boolean),
    set_config('statement_timeout', %(statement_timeout)s::text, %(is_local)s::boolean)
