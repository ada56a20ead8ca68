-- Delete questions where jobs are, and the answers, that are old.
-- Parameters: seconds double precision
-- Returns: nothing
-- Locks: the rows
-- Index: none
DELETE FROM pgjobs_stack AS asked
WHERE
    asked.requested_at
    < statement_timestamp() - make_interval(secs => %(seconds)s::double precision)
