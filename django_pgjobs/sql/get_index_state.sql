-- Tell whether an index is there and complete.
-- Parameters: name text
-- Returns: one row if it is there: is it valid? Not if its building was interrupted
-- Locks: none
-- Index: none: the catalogue only
SELECT index.indisvalid
FROM pg_index AS index
WHERE index.indexrelid = to_regclass(%(name)s::text)::oid
