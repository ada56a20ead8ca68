-- As hold_keyed_claim.sql, but wait until whoever holds it has committed.
-- Parameters: none
-- Returns: one row: the setting, how many seconds it was waited for
-- Locks: the row of pgjobs_keyed_claim, FOR UPDATE
-- Index: pgjobs_keyed_claim_pkey
SELECT
    set_config('pgjobs.keyed_claim', 'held', TRUE),
    EXTRACT(EPOCH FROM clock_timestamp() - statement_timestamp())::double precision
FROM (
    SELECT FROM pgjobs_keyed_claim AS claim
    -- Others have it for as long as a claim lasts; what else a pump waits for has less time.
    WHERE claim.id = 1 AND set_config('lock_timeout', '2s', TRUE) <> ''
    FOR UPDATE
) AS held
