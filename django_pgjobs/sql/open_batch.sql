-- Open a batch below another one: a part that its owner is to be complete with, or one that
-- follows others: of the same flow, or right below the same owner. Nothing is opened if the owner
-- takes nothing any more, or one of the others is elsewhere or is sealed.
-- Parameters: parent_id bigint; job_id, claim bigint (of a running job of the
--     owner, or that has opened it, or NULL);
--     follows text or NULL; waits_for bigint[] (each once); name text; metadata, step text (JSON;
--     the latter NULL for a part); runs_after_failure, skips_none boolean; on_failed_job text
--     (NULL: as the owner)
-- Returns: id, flow_id, is_new (else a former attempt of the job has opened it, by that name); no
--     row if nothing was opened
-- Locks: the job that asks, then the owner and the others FOR KEY SHARE: waits for who seals one
-- Index: pgjobs_batch_pkey, pgjobs_batch_opener, pgjobs_job_live_pkey
WITH {job_id.asking},
known AS MATERIALIZED (
    SELECT batch.id, batch.flow_id
    FROM pgjobs_batch AS batch
    WHERE
        batch.opener_id = %(job_id)s::bigint AND batch.name = %(name)s::text AND batch.name <> ''
        AND batch.parent_id = %(parent_id)s::bigint AND %(follows)s::text IS NULL
),
owner AS MATERIALIZED (
    SELECT batch.id, batch.root_id, batch.flow_id, batch.on_failed_job
    FROM pgjobs_batch AS batch
    WHERE batch.id = %(parent_id)s::bigint AND {batch.takes_jobs}
    FOR KEY SHARE
),
predecessor AS MATERIALIZED (
    SELECT batch.id
    FROM pgjobs_batch AS batch
    WHERE
        batch.id = ANY (%(waits_for)s::bigint[])
        AND EXISTS (
            SELECT FROM owner
            WHERE batch.flow_id = owner.flow_id OR batch.parent_id = owner.id
        )
        AND batch.sealed_at IS NULL
        AND NOT EXISTS (
            SELECT FROM pgjobs_batch_change AS change
            WHERE change.batch_id = batch.id AND (change.seals OR change.cancels)
        )
    ORDER BY batch.id
    FOR KEY SHARE
),
opened AS (
    INSERT INTO pgjobs_batch AS batch (
        id, root_id, parent_id, flow_id, open_predecessors, follows, runs_after_failure,
        skips_none, on_failed_job, name, opener_id, step, metadata
    )
    SELECT
        fresh.id, owner.root_id, owner.id,
        CASE WHEN %(follows)s::text IS NULL THEN fresh.id ELSE owner.flow_id END,
        cardinality(%(waits_for)s::bigint[]), %(follows)s::text,
        %(runs_after_failure)s::boolean, %(skips_none)s::boolean,
        COALESCE(%(on_failed_job)s::text, owner.on_failed_job),
        %(name)s::text,
        CASE
            WHEN %(follows)s::text IS NULL
                THEN (SELECT asking.id FROM asking WHERE asking.batch_id = owner.id)
        END,
        %(step)s::json, %(metadata)s::json
    FROM owner
    CROSS JOIN nextval('pgjobs_batch_id_seq') AS fresh (id)
    WHERE
        (SELECT count(*) FROM predecessor) = cardinality(%(waits_for)s::bigint[])
        AND NOT EXISTS (SELECT FROM known)
    RETURNING batch.id, batch.parent_id, batch.flow_id, batch.follows
),
edge AS (
    INSERT INTO pgjobs_batch_edge (batch_id, waits_for, place)
    SELECT
        opened.id, predecessor.id,
        array_position(%(waits_for)s::bigint[], predecessor.id)
    FROM opened
    CROSS JOIN predecessor
),
noted AS (
    INSERT INTO pgjobs_batch_change (batch_id, children, parts)
    SELECT opened.parent_id, 1, (opened.follows IS NULL)::integer
    FROM opened
)
SELECT opened.id, opened.flow_id, TRUE AS is_new FROM opened
UNION ALL
SELECT known.id, known.flow_id, FALSE FROM known
