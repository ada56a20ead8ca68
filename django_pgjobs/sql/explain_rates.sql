-- Tell which rate limits have too few tokens for a job of this cost.
-- Parameters: rate_limit_keys text (one per line); cost integer
-- Returns: for each: key, name of the limit (NULL: there is none), count, period (seconds),
--     burst, when the tokens are there
-- Locks: none
-- Index: none
SELECT
    rate.key, rule.name, rule.count, rule.period, rule.burst,
    LEAST(state.next_free, '9999-12-30') - make_interval(
        secs => (rule.burst - %(cost)s::integer) * rule.period / (rule.count - rule.burst + 1)
    )
FROM unnest(string_to_array(%(rate_limit_keys)s::text, E'\n'))
    WITH ORDINALITY AS rate (key, place)
LEFT JOIN LATERAL (
    SELECT
        rate_limit.name, rate_limit.count, rate_limit.period,
        COALESCE(rate_limit.burst, GREATEST(1, rate_limit.count / 20)) AS burst
    FROM pgjobs_rate_limit AS rate_limit
    WHERE rate_limit.name IN (rate.key, split_part(rate.key, ':', 1))
    ORDER BY rate_limit.name = rate.key DESC
    LIMIT 1
) AS rule ON TRUE
LEFT JOIN pgjobs_rate_state AS state ON state.key = rate.key
WHERE
    rule.burst IS NULL
    OR rule.burst - GREATEST(0, COALESCE(
        EXTRACT(EPOCH FROM state.next_free - statement_timestamp()), 0
    )) * (rule.count - rule.burst + 1) / rule.period < %(cost)s::integer
ORDER BY rate.place
