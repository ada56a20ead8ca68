-- Measure our tables and indexes: size, estimated rows, what vacuum has left to do.
-- Parameters: none
-- Returns: is it an index?; name; name of the table that it belongs to; bytes without indexes;
--     bytes of its indexes; rows as estimated (NULL: never analyzed); dead rows as counted by the
--     statistics; when autovacuum, analyze last ended (NULL: never); scans of the index; is the
--     index valid?
-- Locks: none
-- Index: none
SELECT
    class.relkind = 'i', class.relname::text, COALESCE(owner.relname, class.relname)::text,
    pg_table_size(class.oid) AS bytes,
    CASE class.relkind WHEN 'r' THEN pg_indexes_size(class.oid) ELSE 0 END,
    CASE WHEN class.reltuples >= 0::real THEN class.reltuples::bigint END,
    stat.n_dead_tup, stat.last_autovacuum, GREATEST(stat.last_analyze, stat.last_autoanalyze),
    used.idx_scan, COALESCE(entry.indisvalid, TRUE)
FROM pg_class AS class
LEFT JOIN pg_index AS entry ON entry.indexrelid = class.oid
LEFT JOIN pg_class AS owner ON owner.oid = entry.indrelid
LEFT JOIN pg_stat_all_tables AS stat ON stat.relid = class.oid
LEFT JOIN pg_stat_all_indexes AS used ON used.indexrelid = class.oid
WHERE
    class.relkind IN ('r', 'i')
    AND COALESCE(owner.relname, class.relname)::text LIKE 'pgjobs\_%%'
    AND class.relnamespace = (
        SELECT home.relnamespace FROM pg_class AS home WHERE home.oid = to_regclass('pgjobs_job')::oid
    )
ORDER BY 1, 4 DESC, 2
LIMIT 200
