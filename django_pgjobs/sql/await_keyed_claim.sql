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
    WHERE claim.id = 1
    FOR UPDATE
) AS held
