-- Take from the rate limits what the jobs with keys cost that claim_jobs.sql has just taken. Others
-- that were chosen cost nothing: somebody had locked or changed them.
-- Parameters: worker_id bigint; token_ids bigint[], token_keys text[], token_seconds double
--     precision[] (what each chosen job takes of a rate limit, in seconds until that is there
--     again)
-- Returns: nothing
-- Locks: the states of the rate limits, which list_heads.sql has locked
-- Index: pgjobs_rate_state_pkey, pgjobs_job_live_pkey
UPDATE pgjobs_rate_state AS state
SET next_free = GREATEST(state.next_free, used.claimed_at) + make_interval(secs => used.seconds)
FROM (
    SELECT token.key, sum(token.seconds) AS seconds, max(job.last_attempted_at) AS claimed_at
    FROM unnest(
        %(token_ids)s::bigint[], %(token_keys)s::text[], %(token_seconds)s::double precision[]
    ) AS token (id, key, seconds)
    JOIN pgjobs_job_live AS job ON job.id = token.id
    WHERE job.id = ANY (%(token_ids)s::bigint[]) AND job.worker_id = %(worker_id)s::bigint
    GROUP BY token.key
) AS used
-- The second condition is for the planner, which would read all states for the first.
WHERE state.key = used.key AND state.key = ANY (%(token_keys)s::text[])
