-- Tell how many jobs have not finished, of each queue and of all: counted now if they are few, else
-- as the newest sample says.
-- Parameters: max_jobs integer (how many are few), max_queues integer
-- Returns: rows of the queues with the most jobs first, behind that of all together, whose queue_name is
--     NULL; ready, running, scheduled, retrying, blocked; when that was measured; are there more
--     than were looked at?
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_queue_sample_measured
WITH {pgjobs_job_live.sizes_now}
SELECT
    sized.queue_name, sized.ready, sized.running, sized.scheduled, sized.retrying, sized.blocked,
    sized.measured_at, sized.is_cut
FROM sized
ORDER BY
    sized.queue_name IS NOT NULL,
    sized.ready + sized.running + sized.scheduled + sized.retrying + sized.blocked DESC,
    sized.queue_name
LIMIT %(max_queues)s::integer + 1
