-- Find the columns that the code uses and the database does not have.
-- Parameters: tables, columns (text[], of equal lengths: a column and the table it is in)
-- Returns: table_name, column_name, in order
-- Locks: none
-- Index: none: the catalogue only, which every role may read
SELECT
    wanted.table_name,
    wanted.column_name
FROM
    unnest(%(tables)s::text[], %(columns)s::text[]) AS wanted (table_name, column_name)
WHERE
    NOT EXISTS (
        SELECT
        FROM pg_attribute AS present
        INNER JOIN pg_class AS class ON class.oid = present.attrelid
        WHERE
            class.relnamespace = (
                SELECT home.relnamespace
                FROM pg_class AS home
                WHERE home.oid = to_regclass('pgjobs_job')::oid
            )
            AND class.relname = wanted.table_name::name
            AND present.attname = wanted.column_name::name
            AND NOT present.attisdropped
    )
ORDER BY
    wanted.table_name,
    wanted.column_name
