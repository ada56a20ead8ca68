-- Set how long this session waits for a lock, how long a statement of it may take, and how long it
-- may send nothing in a transaction.
-- Parameters: lock_timeout, statement_timeout text; idle_timeout text (NULL: as it is); is_local
--     boolean (only until the transaction ends)
-- Returns: the process id of the session; the first two timeouts from before
-- Locks: none
-- Index: none
SELECT
    pg_backend_pid(), current_setting('lock_timeout'), current_setting('statement_timeout'),
    set_config('lock_timeout', %(lock_timeout)s::text, %(is_local)s::boolean),
    set_config('statement_timeout', %(statement_timeout)s::text, %(is_local)s::boolean),
    CASE
        WHEN %(idle_timeout)s::text IS NOT NULL THEN set_config(
            'idle_in_transaction_session_timeout', %(idle_timeout)s::text, %(is_local)s::boolean
        )
    END
