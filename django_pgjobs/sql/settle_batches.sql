-- Count what was noted of batches, complete those that are done, and go on with what follows them.
-- The last statement of a transaction that notes something (but for a retry), because nobody is to
-- wait for a lock while it holds those of batches.
-- Parameters: ids bigint[]; levels integer (of what follows, these included)
-- Returns: batch_id, is_missed, goes_on, unfinished, queue_name, as settle.sql says
-- Locks: the batches, SKIP LOCKED
-- Index: none, pgjobs_settle_v1 uses pgjobs_batch_change_batch
SELECT settled.batch_id, settled.is_missed, settled.goes_on, settled.unfinished, settled.queue_name
FROM pgjobs_settle_v1(%(ids)s::bigint[], %(levels)s::integer) AS settled
