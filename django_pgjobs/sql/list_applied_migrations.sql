-- List the migrations of ours that Django has applied to this database.
-- Parameters: none
-- Returns: name
-- Locks: none
-- Index: none: a few hundred rows, read once at the start
SELECT applied.name
FROM django_migrations AS applied
WHERE applied.app::text = 'pgjobs'
