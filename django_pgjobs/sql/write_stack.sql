-- Write where a running job is, for whoever asked; the next time, if somebody has locked the question.
-- Parameters: job_id, claim bigint; stack text
-- Returns: nothing
-- Locks: the row of the question, SKIP LOCKED
-- Index: pgjobs_stack_pkey
WITH wanted AS MATERIALIZED (
    SELECT asked.job_id
    FROM pgjobs_stack AS asked
    WHERE
        asked.job_id = %(job_id)s::bigint AND asked.claim = %(claim)s::bigint
        AND asked.written_at IS NULL
    FOR UPDATE SKIP LOCKED
)
UPDATE pgjobs_stack AS asked
SET stack = %(stack)s::text, written_at = statement_timestamp()
WHERE asked.job_id = (SELECT wanted.job_id FROM wanted)
