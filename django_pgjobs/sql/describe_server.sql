-- Tell what a worker wants to know before it starts.
-- Parameters: none
-- Returns: one row: version, database name, is the table of jobs there?, may the record of
--     migrations be read?, how many more connections there is room for, without those that are
--     reserved (sessions of roles that this one may not look into are counted as well)
-- Locks: none
-- Index: none
SELECT
    current_setting('server_version'),
    current_database()::text,
    to_regclass('pgjobs_job') IS NOT NULL,
    COALESCE(has_table_privilege(to_regclass('django_migrations'), 'SELECT'), FALSE),
    current_setting('max_connections')::integer
    - current_setting('superuser_reserved_connections')::integer
    - COALESCE(current_setting('reserved_connections', TRUE)::integer, 0)
    - (
        SELECT count(*)
        FROM pg_stat_activity AS session
        WHERE
            session.datid IS NOT NULL AND session.usesysid IS NOT NULL
            AND COALESCE(session.backend_type, 'client backend') = 'client backend'
            AND session.pid <> pg_backend_pid()
    )::integer
