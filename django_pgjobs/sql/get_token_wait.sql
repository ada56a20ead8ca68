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
        ceil(
            1000000::double precision * rate.period / (rate.count - rate.burst + 1)::double precision
        )::numeric / 1000000::numeric AS seconds_per_token
    FROM ({state.key.rate_limit}) AS rate
) AS rule
WHERE state.next_free > statement_timestamp() AND state.next_free < 'infinity'
