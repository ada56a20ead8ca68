-- Tell when the next token comes back to a rate limit that is not full.
-- Parameters: none
-- Returns: one row: seconds, at least 0.01; NULL if all are full
-- Locks: none
-- Index: none
SELECT min(GREATEST(
    0.01, mod(EXTRACT(EPOCH FROM state.next_free - statement_timestamp()), rule.seconds_per_token)
))::double precision
FROM pgjobs_rate_state AS state
CROSS JOIN LATERAL (
    SELECT
        ceil(1000000::double precision * rate_limit.period / (
            rate_limit.count - COALESCE(rate_limit.burst, GREATEST(1, rate_limit.count / 20)) + 1
        )::double precision)::numeric / 1000000::numeric AS seconds_per_token
    FROM pgjobs_rate_limit AS rate_limit
    WHERE rate_limit.name IN (state.key, split_part(state.key, ':', 1))
    ORDER BY rate_limit.name = state.key DESC
    LIMIT 1
) AS rule
WHERE state.next_free > statement_timestamp() AND state.next_free < 'infinity'
