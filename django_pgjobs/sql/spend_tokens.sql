-- Take from the rate limits what the jobs with keys cost that claim_chosen.sql has just taken. Others
-- that were chosen cost nothing: somebody had locked or changed them. Nor do those that the worker
-- will not run: expired ones, and such as only get what their task declares (worker/claiming/filling.py).
-- Parameters: worker_id bigint; token_ids bigint[], token_keys text[], token_costs integer[] (what
--     each chosen job takes of a rate limit); declaring_paths text[] (tasks that declare when their
--     jobs start)
-- Returns: nothing
-- Locks: the states of the rate limits, which list_heads.sql has locked
-- Index: pgjobs_rate_state_pkey, pgjobs_job_live_pkey
UPDATE pgjobs_rate_state AS target
SET
    next_free = recorded.next_free,
    taken_at = recorded.taken_at,
    taken_since = recorded.taken_since
FROM (
    SELECT
        token.key, LEAST(sum(token.cost), 2147483647)::integer AS cost,
        max(job.last_attempted_at) AS instant
    FROM unnest(
        %(token_ids)s::bigint[], %(token_keys)s::text[], %(token_costs)s::integer[]
    ) AS token (id, key, cost)
    JOIN pgjobs_job_live AS job ON job.id = token.id
    WHERE
        job.id = ANY (%(token_ids)s::bigint[]) AND job.worker_id = %(worker_id)s::bigint
        AND COALESCE(job.expires_at > job.last_attempted_at, TRUE)
        AND (job.is_declared OR job.task_path <> ALL (%(declaring_paths)s::text[]))
    GROUP BY token.key
) AS turn
CROSS JOIN LATERAL ({turn.key.rate_limit}) AS rule
CROSS JOIN LATERAL ({turn.key.rate_state}) AS state
CROSS JOIN LATERAL ({turn.recorded}) AS recorded
-- The second condition is for the planner, which would read all states for the first.
WHERE target.key = turn.key AND target.key = ANY (%(token_keys)s::text[])
