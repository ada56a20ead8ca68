-- Tell what a worker wants to know before it starts.
-- Parameters: none
-- Returns: one row: version, database name, is the table of jobs there?
-- Locks: none
-- Index: none
SELECT
    current_setting('server_version'),
    current_database()::text,
    to_regclass('pgjobs_job') IS NOT NULL
