-- List which of some rights the current role does not have.
-- Parameters: kinds text[] (as list_objects.sql names them); ids bigint[] (oids); rights text[];
--     columns text[] (NULL: of the whole object)
-- Returns: the place of each missing one in the arrays, from 1 on; the quoted name of the role
-- Locks: none
-- Index: none
SELECT wanted.place, quote_ident(current_user::text)
FROM unnest(
    %(kinds)s::text[], %(ids)s::bigint[], %(rights)s::text[], %(columns)s::text[]
) WITH ORDINALITY AS wanted (kind, id, name, column_name, place)
WHERE NOT CASE
    WHEN wanted.column_name IS NOT NULL
    THEN has_column_privilege(wanted.id::oid, wanted.column_name, wanted.name)
    WHEN wanted.kind = 'schema' THEN has_schema_privilege(wanted.id::oid, wanted.name)
    WHEN wanted.kind = 'table' THEN has_table_privilege(wanted.id::oid, wanted.name)
    WHEN wanted.kind = 'sequence' THEN has_sequence_privilege(wanted.id::oid, wanted.name)
    ELSE has_function_privilege(wanted.id::oid, wanted.name)
END
ORDER BY wanted.place
