-- Ask for the server's time.
-- Parameters: none
-- Returns: one row: the time now
-- Locks: none
-- Index: none
SELECT statement_timestamp()
