-- Tell what a worker wants to know before it starts.
-- Parameters: none
-- Returns: one row: version, database name, is the table of jobs there?, may the record of
--     migrations be read?, how many more connections there is room for, by the limits of the
--     server, the database and the role, without those that are reserved (sessions of roles that
--     this one may not look into are counted as well)
-- Locks: none
-- Index: none
WITH sessions AS (
    SELECT
        count(*) AS here,
        count(*) FILTER (WHERE session.datname = current_database()) AS of_database,
        count(*) FILTER (WHERE session.usename = session_user) AS of_role
    FROM pg_stat_activity AS session
    WHERE
        session.datid IS NOT NULL AND session.usesysid IS NOT NULL
        AND COALESCE(session.backend_type, 'client backend') = 'client backend'
        AND session.pid <> pg_backend_pid()
)

SELECT
    current_setting('server_version'),
    current_database()::text,
    to_regclass('pgjobs_job') IS NOT NULL,
    COALESCE(has_table_privilege(to_regclass('django_migrations'), 'SELECT'), FALSE),
    LEAST(
        current_setting('max_connections')::integer
        - current_setting('superuser_reserved_connections')::integer
        - COALESCE(current_setting('reserved_connections', TRUE)::integer, 0)
        - sessions.here,
        -- -1: no limit. None holds for superusers.
        (
            SELECT base.datconnlimit - sessions.of_database
            FROM pg_database AS base
            WHERE
                base.datname = current_database()
                AND base.datconnlimit >= 0 AND NOT role.rolsuper
        ),
        CASE
            WHEN role.rolconnlimit >= 0 AND NOT role.rolsuper
                THEN role.rolconnlimit - sessions.of_role
        END
    )::integer
FROM sessions, pg_roles AS role
WHERE role.rolname = session_user
