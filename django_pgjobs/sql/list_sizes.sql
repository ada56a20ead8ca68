-- Tell how many jobs have not finished, of each queue and of all: counted now if they are few, else
-- as the newest sample says.
-- Parameters: max_jobs integer (how many are few)
-- Returns: rows of the queues with the most jobs first, behind that of all together, whose queue_name is
--     NULL; ready, running, scheduled, retrying, held; since when the oldest waits that may run;
--     when that was measured; are there more than were looked at? No row: there are many, and no sample
-- Locks: none
-- Index: pgjobs_job_live_pkey, pgjobs_queue_sample_measured
WITH found AS (
    SELECT
        job.queue_name, job.status, job.hold, job.due_at, job.attempts, job.ready_at,
        job.enqueued_at, job.run_after
    FROM pgjobs_job_live AS job
    ORDER BY job.id
    LIMIT %(max_jobs)s::bigint + 1
),
{found.sizes},
few AS MATERIALIZED (
    SELECT size.jobs <= %(max_jobs)s::bigint AS holds FROM size WHERE size.is_sum
)
SELECT
    sized.queue_name, sized.ready, sized.running, sized.scheduled, sized.retrying, sized.held,
    sized.waiting_since, sized.measured_at, sized.is_cut
FROM (
    SELECT
        size.queue_name, size.ready, size.running, size.scheduled, size.retrying,
        size.held, size.waiting_since, statement_timestamp() AS measured_at,
        FALSE AS is_cut
    FROM size
    WHERE (SELECT few.holds FROM few)
    UNION ALL
    SELECT
        sample.queue_name, sample.ready, sample.running, sample.scheduled, sample.retrying,
        sample.held, sample.waiting_since, sample.measured_at, sample.is_cut
    FROM pgjobs_queue_sample AS sample
    WHERE
        NOT (SELECT few.holds FROM few)
        AND sample.measured_at = (
            SELECT latest.measured_at
            FROM pgjobs_queue_sample AS latest
            WHERE latest.measured_at <= statement_timestamp()
            ORDER BY latest.measured_at DESC
            LIMIT 1
        )
) AS sized
ORDER BY
    sized.queue_name IS NOT NULL,
    sized.ready + sized.running + sized.scheduled + sized.retrying + sized.held DESC,
    sized.queue_name
