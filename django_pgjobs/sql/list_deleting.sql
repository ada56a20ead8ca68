-- Of trees that were to be deleted, leave those again of which a job was requeued before it was noted.
-- One that was marked before, of which jobs may be gone, is not left, whatever is noted: that was too
-- late, as a cancel that was committed meanwhile.
-- Parameters: roots bigint[]; marked bigint[] (those of them that mark_deleting has returned, in the
--     same transaction)
-- Returns: id of each that is being deleted
-- Locks: the roots that are left (locked before)
-- Index: pgjobs_batch_pkey
WITH {root.noted},
spared AS (
    UPDATE pgjobs_batch AS root
    SET deleting_at = NULL
    WHERE
        root.id = ANY (%(marked)s::bigint[]) AND root.deleting_at IS NOT NULL
        AND root.id IN (SELECT noted.root_id FROM noted)
    RETURNING root.id
)
SELECT root.id
FROM pgjobs_batch AS root
WHERE
    root.id = ANY (%(roots)s::bigint[]) AND root.deleting_at IS NOT NULL
    AND root.id NOT IN (SELECT spared.id FROM spared)
