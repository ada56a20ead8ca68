"""The row about `rate_limit=`: how many jobs workers start of what a limit allows.

The instants are those of the claims, noted by a trigger: a finished row tells when its job began.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

from tests.benchmarks.measures import Measured
from tests.benchmarks.system import System
from tests.windows import largest_window

RATES = (1, 5, 20, 100)  # a second
WORKERS = (1, 4)
SECONDS = 10.0
PERIOD = timedelta(seconds=1)

PREPARE = """
DROP TABLE IF EXISTS bench_claim;
CREATE TABLE bench_claim (rate text, claimed_at timestamptz);
CREATE OR REPLACE FUNCTION bench_note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.bench_claim VALUES (NEW.rate_limit_keys, NEW.last_attempted_at);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER bench_note_claim AFTER UPDATE ON pgjobs_job_live
    FOR EACH ROW WHEN (
        OLD.status = 'ready' AND NEW.status = 'running' AND NEW.rate_limit_keys IS NOT NULL
    )
    EXECUTE FUNCTION bench_note_claim();
"""
FORGET = "DROP TRIGGER bench_note_claim ON pgjobs_job_live"
LIMIT = "INSERT INTO pgjobs_rate_limit (name, count, period) VALUES (%s, %s, 1)"
JOBS = """
INSERT INTO pgjobs_job (task_path, args, rate_limit_keys)
SELECT 'ours_tasks.noop', '[1]', %s FROM generate_series(1, %s)
"""
CLAIMS = """
SELECT json_agg(EXTRACT(EPOCH FROM claimed_at) ORDER BY claimed_at)::text
FROM bench_claim WHERE rate = %s
"""


def measure_starts(system: System) -> Measured:
    """Return the least share of all rates, and by how much a window was above its limit."""
    shares: dict[str, float] = {}
    excess = 0.0
    system.query("TRUNCATE pgjobs_rate_limit, pgjobs_rate_state")
    for workers in WORKERS:
        system.reset()
        system.query(PREPARE)
        with system.workers(workers):
            for rate in RATES:
                share, worst = start_at(system, f"rate-{rate}-{workers}", rate)
                shares[f"share_{rate}_{workers}"] = share
                excess = max(excess, worst - rate)
        system.query(FORGET)
    return Measured({**shares, "excess": excess})


def start_at(system: System, name: str, rate: int) -> tuple[float, int]:
    """Let jobs wait for a limit; return the steady share, and the worst window."""
    system.query(LIMIT, name, rate)
    system.query(JOBS, name, int(rate * (SECONDS + 5)))
    time.sleep(SECONDS + 2)
    system.query("UPDATE pgjobs_job SET hold = 'dependencies' WHERE status = 'ready'")
    found = system.query(CLAIMS, name)
    instants = [datetime.fromtimestamp(at, UTC) for at in json.loads(found or "[]")]
    if not instants:
        return 0.0, 0
    # From the first claim on to one whole windows later, and not less than what there was time for.
    windows = (len(instants) - 1) // rate
    elapsed = (instants[windows * rate] - instants[0]) / PERIOD
    share = min(windows / elapsed if elapsed else 0.0, len(instants) / (rate * SECONDS))
    worst = largest_window([(instant, 1) for instant in instants], PERIOD)
    return min(share, 1.0), worst
