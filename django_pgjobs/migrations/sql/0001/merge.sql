-- Merge the arguments of two enqueues of one unique key, in the statement that enqueues.
--
-- `json` and its text, not `jsonb`: 1e16, the order of keys and numbers of any length stay.
-- *manner*: 'last' (the latter), 'append' or 'union' (lists are joined, with or without twins).
CREATE FUNCTION pgjobs_merge_v1(former json, latter json, manner text) RETURNS json
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF manner = 'last' OR json_typeof(former) <> 'object' OR json_typeof(latter) <> 'object' THEN
        RETURN latter;
    END IF;
    RETURN (
        WITH argument AS (
            SELECT
                key, was.value AS was, now.value AS now,
                row_number() OVER (ORDER BY was.place, now.place) AS place
            FROM (
                SELECT DISTINCT ON (key) key, value, place
                FROM json_each(former) WITH ORDINALITY AS entry (key, value, place)
                ORDER BY key, place DESC
            ) AS was
            FULL JOIN (
                SELECT DISTINCT ON (key) key, value, place
                FROM json_each(latter) WITH ORDINALITY AS entry (key, value, place)
                ORDER BY key, place DESC
            ) AS now USING (key)
        )
        SELECT '{' || COALESCE(string_agg(
            to_json(key)::text || ':' || CASE
                WHEN now IS NULL THEN was::text
                WHEN was IS NULL THEN now::text
                WHEN json_typeof(was) = 'array' AND json_typeof(now) = 'array' THEN (
                    SELECT '[' || COALESCE(string_agg(item.text, ',' ORDER BY item.place), '') || ']'
                    FROM (
                        SELECT
                            value::text AS text, place,
                            row_number() OVER (PARTITION BY value::jsonb ORDER BY place) AS nth
                        FROM (
                            SELECT value, ARRAY[1, place] AS place
                            FROM json_array_elements(was) WITH ORDINALITY AS entry (value, place)
                            UNION ALL
                            SELECT value, ARRAY[2, place]
                            FROM json_array_elements(now) WITH ORDINALITY AS entry (value, place)
                        ) AS entry
                    ) AS item
                    WHERE item.nth = 1 OR manner = 'append'
                )
                WHEN json_typeof(was) = 'object' AND json_typeof(now) = 'object' THEN (
                    SELECT '{' || COALESCE(string_agg(
                        to_json(entry.key)::text || ':' || entry.value, ',' ORDER BY entry.first
                    ), '') || '}'
                    FROM (
                        SELECT
                            key, min(place) AS first,
                            (array_agg(value::text ORDER BY place DESC))[1] AS value
                        FROM (
                            SELECT key, value, ARRAY[1, place] AS place
                            FROM json_each(was) WITH ORDINALITY AS entry (key, value, place)
                            UNION ALL
                            SELECT key, value, ARRAY[2, place]
                            FROM json_each(now) WITH ORDINALITY AS entry (key, value, place)
                        ) AS entry
                        GROUP BY key
                    ) AS entry
                )
                ELSE now::text
            END, ',' ORDER BY argument.place
        ), '') || '}'
        FROM argument
    )::json;
END
$body$;

CREATE AGGREGATE pgjobs_merged_v1(json, text) (SFUNC = pgjobs_merge_v1, STYPE = json);
