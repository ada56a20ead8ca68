-- Add up rows of one period that are old enough to rows of the next longer one; enter parts into the
-- sums by queue and by task as well, which roll_up_sums.sql adds up.
-- Parameters: period, into text; step double precision (seconds of the longer period); keep double
--     precision (seconds that they stay at least); max_rows integer
-- Returns: how many rows were added up
-- Locks: those rows
-- Index: pgjobs_statistic_begin, pgjobs_statistic_pkey
WITH {pgjobs_statistic.rolled_up},
summed AS (
    INSERT INTO pgjobs_statistic_sum (
        begins_at, queue_name, task_path, enqueued, successful, failed, cancelled, retried, lost,
        waited, ran, waits, runs
    )
    SELECT
        entered.begins_at, each.queue_name, each.task_path, entered.enqueued, entered.successful,
        entered.failed, entered.cancelled, entered.retried, entered.lost, entered.waited,
        entered.ran, entered.waits, entered.runs
    FROM entered
    CROSS JOIN LATERAL (
        VALUES (entered.queue_name, NULL), (NULL, entered.task_path)
    ) AS each (queue_name, task_path)
    WHERE %(period)s::text = 'part'
)
SELECT count(*) FROM gone
