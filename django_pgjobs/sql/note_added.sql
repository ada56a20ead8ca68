-- Note that jobs were added to a batch.
-- Parameters: batch_id bigint; jobs bigint
-- Returns: nothing
-- Locks: none that another session waits for
-- Index: none
INSERT INTO pgjobs_batch_change (batch_id, jobs)
VALUES (%(batch_id)s::bigint, %(jobs)s::bigint)
