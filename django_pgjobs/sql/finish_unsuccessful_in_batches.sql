-- Finish attempts that failed for good or were cancelled, all of them of jobs of batches: these
-- have something to count.
-- Parameters: as finish_unsuccessful
-- Returns: id of each job that was finished
-- Locks: the finished rows, by primary key
-- Index: pgjobs_job_live_pkey
{head of finish_unsuccessful}
,
counted AS (
    SELECT job.batch_id, ended.status
    FROM ended
    CROSS JOIN LATERAL (
        -- As it was when the statement began.
        SELECT former.batch_id
        FROM pgjobs_job_live AS former
        WHERE former.id = ended.id AND former.status IN ('ready', 'running')
        OFFSET 0
    ) AS job
),
noted AS (
    {counted.changes_of_batches}
)
SELECT ended.id FROM ended
