-- List trees that have been complete for as long as they are kept, or nearly: a page in order of
-- id.
-- Parameters: retention, failed_retention double precision (seconds; the latter of a tree in which
--     something failed or was cancelled; NULL: for ever); notice double precision (seconds before
--     the end of these); is_told boolean (of those that were told of so long ago, or of others);
--     behind bigint (where the page before ended, 0 at first); max_trees integer
-- Returns: id of the root
-- Locks: none
-- Index: pgjobs_batch_ended
SELECT ended.id
FROM (
    VALUES
        (FALSE, %(retention)s::double precision),
        (TRUE, %(failed_retention)s::double precision)
) AS kept (tree_failed, seconds)
CROSS JOIN LATERAL (
    SELECT root.id
    FROM pgjobs_batch AS root
    WHERE
        root.parent_id IS NULL AND root.tree_completed_at IS NOT NULL
        AND root.tree_failed = kept.tree_failed
        AND root.tree_completed_at < statement_timestamp() - make_interval(
            secs => kept.seconds
                - CASE WHEN %(is_told)s::boolean THEN 0 ELSE %(notice)s::double precision END
        )
        AND (COALESCE(root.told_at, '-infinity') >= root.tree_completed_at) = %(is_told)s::boolean
        AND (
            NOT %(is_told)s::boolean
            OR root.told_at
            <= statement_timestamp() - make_interval(secs => %(notice)s::double precision)
        )
    OFFSET 0
) AS ended
-- Not a condition of the roots: their primary key would be read from there on.
WHERE ended.id > %(behind)s::bigint
ORDER BY ended.id
LIMIT %(max_trees)s::integer
