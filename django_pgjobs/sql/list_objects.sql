-- List what roles need rights on, with names as they stand in a statement.
-- Parameters: roles text[] (names to be quoted as well)
-- Returns: kind ('role', 'schema', 'table', 'sequence' or 'function'); plain name; quoted
--     name; of a sequence that is read, the name of its table; oid
-- Locks: none
-- Index: none
WITH home AS (
    SELECT class.relnamespace AS id
    FROM pg_class AS class
    WHERE
        class.oid = to_regclass('pgjobs_job')::oid
        -- A search path passes over schemas that the role may not use.
        OR to_regclass('pgjobs_job') IS NULL AND class.relname::text = 'pgjobs_job'
        AND NOT has_schema_privilege(class.relnamespace, 'USAGE')
    LIMIT 1
)
SELECT 'role', wanted.name, quote_ident(wanted.name), NULL, NULL
FROM pg_catalog.unnest(%(roles)s::text[]) AS wanted (name)
UNION ALL
SELECT 'schema', namespace.nspname::text, quote_ident(namespace.nspname::text), NULL,
    namespace.oid::bigint
FROM home
JOIN pg_namespace AS namespace ON namespace.oid = home.id
UNION ALL
SELECT
    CASE class.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, class.relname::text,
    format('%%I.%%I', namespace.nspname, class.relname), owner.relname::text,
    class.oid::bigint
FROM home
JOIN pg_namespace AS namespace ON namespace.oid = home.id
JOIN pg_class AS class ON class.relnamespace = home.id
LEFT JOIN pg_depend AS link ON
    class.relkind = 'S' AND link.classid = 'pg_class'::regclass::oid AND link.objid = class.oid
    AND link.refclassid = 'pg_class'::regclass::oid AND link.deptype IN ('a', 'i')
LEFT JOIN pg_class AS owner ON owner.oid = link.refobjid
WHERE
    (class.relname::text LIKE 'pgjobs\_%%' OR class.oid = to_regclass('django_migrations')::oid)
    -- The sequence of an identity column ('i') needs no right of its own, but that of batches: who
    -- opens one takes its id before it inserts.
    AND (
        class.relkind IN ('r', 'p')
        OR class.relkind = 'S'
        AND (link.deptype = 'a' OR class.relname::text = 'pgjobs_batch_id_seq')
    )
UNION ALL
SELECT
    'function', routine.proname::text,
    format('%%I.%%I', namespace.nspname, routine.proname), NULL, routine.oid::bigint
FROM home
JOIN pg_namespace AS namespace ON namespace.oid = home.id
JOIN pg_proc AS routine ON routine.pronamespace = home.id
WHERE
    routine.proname::text LIKE 'pgjobs\_%%'
    -- Triggers are called without a right to.
    AND routine.prorettype <> 'trigger'::regtype::oid
ORDER BY 1, 2
