-- Append what a process has counted in minutes that are over.
-- Parameters: cells json (an array of objects: number of the minute since 1970, queue and task; ends,
--     how many were successful, failed, were cancelled, and are to be retried; lost; waited, ran;
--     waits, runs)
-- Returns: nothing
-- Locks: none
-- Index: none
INSERT INTO pgjobs_statistic (
    begins_at, queue_name, task_path, successful, failed, cancelled, retried, lost, waited, ran,
    waits, runs
)
SELECT
    timestamptz 'epoch' + make_interval(mins => cell.minute), cell.queue_name, cell.task_path,
    cell.ends[1], cell.ends[2], cell.ends[3], cell.ends[4], cell.lost,
    -- Jobs of the year 1 have waited so long that a few thousand of them pass the bound of the sum.
    LEAST(cell.waited, 1e15), LEAST(cell.ran, 1e15),
    cell.waits, cell.runs
FROM json_to_recordset(%(cells)s::json) AS cell (
    minute integer, queue_name text, task_path text, ends bigint[], lost bigint,
    waited double precision, ran double precision, waits bigint[], runs bigint[]
)
