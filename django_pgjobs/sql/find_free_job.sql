-- Find the first of some jobs that nobody has locked.
-- Parameters: ids bigint[] (in order)
-- Returns: id, task_path; no row if all are locked or gone
-- Locks: that job, FOR UPDATE SKIP LOCKED
-- Index: pgjobs_job_live_pkey
SELECT job.id, job.task_path
FROM pgjobs_job_live AS job
WHERE
    job.id = ANY (%(ids)s::bigint[])
    AND job.status IN ('ready', 'running') AND job.status <> 'running'
ORDER BY array_position(%(ids)s::bigint[], job.id)
LIMIT 1
FOR UPDATE SKIP LOCKED
