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
        WHERE
            present.attrelid = to_regclass(wanted.table_name)
            AND present.attname = wanted.column_name
            AND NOT present.attisdropped
    )
ORDER BY
    wanted.table_name,
    wanted.column_name
