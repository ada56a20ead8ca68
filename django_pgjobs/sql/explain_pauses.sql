-- List the pauses that keep a job from being claimed.
-- Parameters: queue_name, task_path, concurrency_key text (NULL: none)
-- Returns: kind, name, reason, paused_by, paused_at, resume_at
-- Locks: none
-- Index: none
SELECT
    pause.kind, pause.name, pause.reason, pause.paused_by, pause.paused_at,
    -- For ever is no instant in Python.
    CASE WHEN pause.resume_at < '9999-12-30' THEN pause.resume_at END
FROM pgjobs_pause AS pause
WHERE
    (pause.resume_at IS NULL OR pause.resume_at > statement_timestamp())
    AND (
        (pause.kind = 'queue' AND pause.name = %(queue_name)s::text)
        OR (pause.kind = 'task' AND pause.name = %(task_path)s::text)
        OR (
            pause.kind = 'key'
            AND %(concurrency_key)s::text LIKE replace(replace(replace(replace(
                pause.name, E'\\', E'\\\\'), '%%', E'\\%%'), '_', E'\\_'), '*', '%%')
        )
    )
ORDER BY array_position(ARRAY['queue', 'task', 'key'], pause.kind), pause.name
