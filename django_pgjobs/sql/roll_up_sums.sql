-- Add up sums by queue and by task of one period that are old enough to sums of the next longer one.
-- Parameters: period, into text; step double precision (seconds of the longer period); keep double
--     precision (seconds that they stay at least); max_rows integer
-- Returns: how many rows were added up
-- Locks: those rows
-- Index: pgjobs_statistic_sum_begin, pgjobs_statistic_sum_pkey
WITH {pgjobs_statistic_sum.rolled_up}
SELECT count(*) FROM gone
