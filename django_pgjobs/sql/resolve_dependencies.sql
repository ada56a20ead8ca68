-- Let the jobs go on that waited for some of the given ones, as far as those have finished: so many
-- of them at a time.
--
-- It follows the statements that finish them, in their transaction or behind it: it has to look
-- after they have got their locks, to see the dependencies of whoever they waited for. One for all of
-- them, so that rows of waiting jobs are locked in one order.
-- Parameters: ids, behind bigint[] (the jobs that wait for each, behind the one in its place; all
--     of them if there is none); max_dependencies integer
-- Returns: queue_name of the jobs that may run now; behind them, if some are left, with whom to go
--     on and behind which job: NULL, predecessor_id, job_id
-- Locks: the waiting jobs, in order of id; gives up after half a second
-- Index: none, pgjobs_resolve_v1 uses pgjobs_dependency_predecessor_id_job_id_key
SELECT resolved.queue_name, resolved.predecessor_id, resolved.job_id
FROM pgjobs_resolve_v1(
    %(ids)s::bigint[], %(max_dependencies)s::integer, %(behind)s::bigint[]
) AS resolved
