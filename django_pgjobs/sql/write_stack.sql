-- Write where a running job is, for whoever asked.
-- Parameters: job_id, claim bigint; stack text
-- Returns: nothing
-- Locks: the row of the question
-- Index: pgjobs_stack_pkey
UPDATE pgjobs_stack AS asked
SET stack = %(stack)s::text, written_at = statement_timestamp()
WHERE
    asked.job_id = %(job_id)s::bigint AND asked.claim = %(claim)s::bigint
    AND asked.written_at IS NULL
