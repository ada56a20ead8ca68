-- Tell what a worker wants to know before it starts.
-- Parameters: none
-- Returns: one row: version, database name, is the table of jobs there?, may the record of
-- migrations be read?
-- Locks: none
-- Index: none
SELECT
    current_setting('server_version'),
    current_database()::text,
    to_regclass('pgjobs_job') IS NOT NULL,
    COALESCE(has_table_privilege(to_regclass('django_migrations'), 'SELECT'), FALSE)
