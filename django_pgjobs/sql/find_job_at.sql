-- Find the newest job that was enqueued by a moment, as far as later ids are of later moments: by
-- halving the range of the ids, which takes one probe for each of its binary digits.
-- Parameters: moment timestamptz
-- Returns: its id, one less than the oldest id if all jobs are newer; no row if there are no jobs
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_job_finished_pkey
WITH RECURSIVE search AS (
    -- Halves of the numbers there are: the difference is one as well.
    SELECT
        GREATEST(oldest.id, -4000000000000000000) - 1 AS low,
        LEAST(newest.id, 4000000000000000000) AS high
    FROM (SELECT job.id FROM pgjobs_job AS job ORDER BY job.id LIMIT 1) AS oldest
    CROSS JOIN (SELECT job.id FROM pgjobs_job AS job ORDER BY job.id DESC LIMIT 1) AS newest
    UNION ALL
    SELECT
        CASE WHEN probe.is_by_then THEN middle.id ELSE search.low END,
        CASE WHEN probe.is_by_then THEN search.high ELSE middle.id - 1 END
    FROM search
    CROSS JOIN LATERAL (SELECT search.low + (search.high - search.low + 1) / 2 AS id) AS middle
    CROSS JOIN LATERAL (
        SELECT job.enqueued_at <= %(moment)s::timestamptz AS is_by_then
        FROM pgjobs_job AS job
        WHERE job.id <= middle.id
        ORDER BY job.id DESC
        LIMIT 1
    ) AS probe
    WHERE search.low < search.high
)
SELECT search.low
FROM search
WHERE search.low >= search.high
