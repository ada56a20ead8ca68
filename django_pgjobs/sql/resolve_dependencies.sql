-- Let the jobs go on that waited for some of the given ones, as far as those have finished.
--
-- It follows the statements that finish them, in their transaction: it has to look after they
-- have got their locks, to see the dependencies of whoever they waited for. One for all of
-- them, so that rows of waiting jobs are locked in one order.
-- Parameters: ids bigint[]
-- Returns: queue_name of the jobs that may run now
-- Locks: the waiting jobs, in order of id; gives up after half a second
-- Index: none, pgjobs_resolve_v1 uses pgjobs_dependency_predecessor_id_job_id_key
SELECT queue_name FROM pgjobs_resolve_v1(%(ids)s::bigint[]) AS queue_name
