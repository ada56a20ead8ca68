-- Let schedules that could not be planned be planned anew: what was missing may be there now.
-- Parameters: tasks text[] (only schedules of these); max_schedules integer
-- Returns: nothing; at most so many are changed, whichever
-- Locks: the schedules, SKIP LOCKED
-- Index: none; the schedules are read
UPDATE pgjobs_schedule AS schedule
SET next_at = '-infinity', error = ''
WHERE schedule.name = ANY (
    ARRAY(
        SELECT broken.name
        FROM pgjobs_schedule AS broken
        WHERE
            broken.next_at IS NULL AND broken.error <> ''
            AND broken.plan_from IS NOT NULL
            AND {broken.is_in_force}
            AND broken.task_path = ANY (%(tasks)s::text[])
        ORDER BY random()
        LIMIT %(max_schedules)s::integer
        FOR UPDATE SKIP LOCKED
    )
)
