-- Open a batch that is the root of a tree, unless there is one of that name with its dedupe key.
-- Parameters: name text; dedupe_key text or NULL; on_failed_job text; metadata text (JSON)
-- Returns: id, is_new; no row if another transaction has just inserted that one
-- Locks: waits for transactions that have just inserted one with the same key
-- Index: pgjobs_batch_dedupe
WITH opened AS (
    INSERT INTO pgjobs_batch AS batch (
        id, root_id, flow_id, name, dedupe_key, on_failed_job, metadata
    )
    SELECT
        fresh.id, fresh.id, fresh.id, %(name)s::text, %(dedupe_key)s::text,
        %(on_failed_job)s::text, %(metadata)s::json
    FROM nextval('pgjobs_batch_id_seq') AS fresh (id)
    ON CONFLICT (name, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
    RETURNING batch.id
)
SELECT opened.id, TRUE AS is_new FROM opened
UNION ALL
SELECT batch.id, FALSE
FROM pgjobs_batch AS batch
WHERE
    batch.name = %(name)s::text AND batch.dedupe_key = %(dedupe_key)s::text
    AND batch.dedupe_key IS NOT NULL
