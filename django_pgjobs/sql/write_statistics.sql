-- Append what a process has counted in minutes that are over.
-- Parameters: cells json (an array of objects with the number of the minute since 1970, queue and task,
--     and the columns of the numbers)
-- Returns: nothing
-- Locks: none
-- Index: none
INSERT INTO pgjobs_statistic (
    period, at, queue_name, task_path, successful, failed, cancelled, retried,
    waited, ran, waits, runs
)
SELECT
    'part', timestamptz 'epoch' + make_interval(mins => cell.minute), cell.queue_name, cell.task_path,
    cell.successful, cell.failed, cell.cancelled, cell.retried,
    cell.waited, cell.ran, cell.waits, cell.runs
FROM json_to_recordset(%(cells)s::json) AS cell (
    minute integer, queue_name text, task_path text, successful bigint, failed bigint,
    cancelled bigint, retried bigint, waited double precision, ran double precision,
    waits bigint[], runs bigint[]
)
