-- Become the one worker that claims jobs with keys, until the transaction ends. A statement of
-- its own, so that the claim after it sees everything that the one before committed. If somebody
-- emptied the table, as tests do, its row is made again and can be held the next time.
-- Parameters: none
-- Returns: one row if nobody else holds it: the setting, how many seconds it was waited for
-- Locks: the row of pgjobs_keyed_claim, FOR UPDATE SKIP LOCKED
-- Index: pgjobs_keyed_claim_pkey
WITH made AS (
    INSERT INTO pgjobs_keyed_claim (id)
    SELECT 1
    WHERE NOT EXISTS (SELECT FROM pgjobs_keyed_claim AS claim WHERE claim.id = 1)
    ON CONFLICT DO NOTHING
)
SELECT
    set_config('pgjobs.keyed_claim', 'held', TRUE),
    EXTRACT(EPOCH FROM clock_timestamp() - statement_timestamp())::double precision
FROM (
    SELECT FROM pgjobs_keyed_claim AS claim
    WHERE claim.id = 1
    FOR UPDATE SKIP LOCKED
) AS held
