-- Write into a job's row why it is left alone; nothing else about it changes. The note goes with
-- the next statement that changes the job's place (claim, promotion, finish, rescue, cancel).
-- Parameters: id bigint; note text
-- Returns: nothing
-- Locks: the row, SKIP LOCKED
-- Index: pgjobs_job_live_pkey
UPDATE pgjobs_job_live AS job
SET note = %(note)s::text
WHERE job.status IN ('ready', 'running') AND job.id = (
    SELECT free.id
    FROM pgjobs_job_live AS free
    WHERE free.id = %(id)s::bigint AND free.status IN ('ready', 'running')
    FOR UPDATE SKIP LOCKED
)
