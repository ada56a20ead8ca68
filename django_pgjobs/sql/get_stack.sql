-- Tell where a running job was when its worker was asked.
-- Parameters: job_id bigint
-- Returns: when it was asked, when it answered (NULL: not yet), the stack, has the worker not answered
--     within its lease?; no row: nobody asked about this attempt
-- Locks: none
-- Index: pgjobs_stack_pkey, pgjobs_job_live_pkey
SELECT
    asked.requested_at, asked.written_at, asked.stack,
    asked.written_at IS NULL
    AND asked.requested_at
    < statement_timestamp() - make_interval(
        secs => LEAST(GREATEST(COALESCE((
            SELECT worker.lease_seconds
            FROM pgjobs_worker AS worker
            WHERE worker.id = asked.worker_id
        ), 0), 1), 86400)
    )
FROM pgjobs_stack AS asked
JOIN pgjobs_job_live AS job ON job.id = asked.job_id
WHERE asked.job_id = %(job_id)s::bigint AND {job.runs} AND job.claim = asked.claim
