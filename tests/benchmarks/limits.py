"""The row about rate limits: processes that take tokens of one limit inside their tasks.

Each worker has a queue and a job of its own, so that none of them is idle; all begin at the
same moment and take tokens one after the other until the time is over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.benchmarks.errors import MeasurementFailed
from tests.benchmarks.measures import Measured
from tests.benchmarks.processes import WorkerGroup
from tests.benchmarks.system import System, module_command
from tests.windows import largest_window

PROCESSES = 8
COUNT = 100
PERIOD_SECONDS = 1.0
LIMITED_SECONDS = 10.0
UNLIMITED_SECONDS = 5.0
# For the workers to claim their jobs before the first token is taken.
HEAD_START_SECONDS = 3.0
READY_SECONDS = 60.0

LIMITS = """
INSERT INTO pgjobs_rate_limit (name, count, period)
VALUES ('limited', %s, %s), ('unlimited', 2000000000, 1)
"""
JOB = "INSERT INTO pgjobs_job (task_path, queue_name, args) VALUES ('ours_tasks.take', %s, %s)"


def measure_limit(system: System) -> Measured:
    path = system.bench.folder / f"{system.name}.grants"
    system.reset()
    system.query("TRUNCATE pgjobs_rate_limit, pgjobs_rate_state")
    system.query(LIMITS, COUNT, PERIOD_SECONDS)
    with workers_with_queues(system, BENCH_GRANTS_FILE=str(path)) as group:
        limited = take(system, group, path, "limited", LIMITED_SECONDS)
        unlimited = take(system, group, path, "unlimited", UNLIMITED_SECONDS)
    history = [(datetime.fromtimestamp(at, UTC), 1) for at in limited]
    worst = largest_window(history, timedelta(seconds=PERIOD_SECONDS))
    allowed = COUNT * LIMITED_SECONDS / PERIOD_SECONDS
    return Measured(
        {
            "share": len(limited) / allowed,
            "window": float(worst),
            "rate": len(unlimited) / UNLIMITED_SECONDS,
        }
    )


@contextmanager
def workers_with_queues(system: System, **variables: str) -> Iterator[WorkerGroup]:
    """Run PROCESSES workers, each of one slot, with the queues limit-0, limit-1, ..."""
    log_path = system.bench.folder / f"{system.name}.log"
    log_path.write_bytes(b"")
    group = WorkerGroup(log_path)
    python = str(system.environment.python)
    try:
        for number in range(PROCESSES):
            command = module_command(
                *("django", "runjobs", "-c", 1, "-q", f"limit-{number}", "-v", 0, "--no-reload")
            )
            group.start([python, *command], system.variables(**variables), system.bench.folder)
        live = "SELECT count(*) FROM pgjobs_worker WHERE listening AND ended_at IS NULL"
        deadline = time.monotonic() + READY_SECONDS
        while system.query(live) < PROCESSES:
            group.check()
            if time.monotonic() > deadline:
                raise MeasurementFailed(f"not all workers were ready in {READY_SECONDS:.0f} s")
            time.sleep(0.1)
        yield group
    finally:
        group.stop()


def take(system: System, group: WorkerGroup, path: Path, key: str, seconds: float) -> list[float]:
    """Return the instants at which tokens were granted, within *seconds* from the first."""
    path.unlink(missing_ok=True)
    system.begin_count()
    start = time.time() + HEAD_START_SECONDS
    for number in range(PROCESSES):
        system.query(JOB, f"limit-{number}", json.dumps([key, start, seconds]))
    progress = system.wait_until_done(
        group, PROCESSES, seconds + HEAD_START_SECONDS + READY_SECONDS
    )
    if not progress.complete:
        raise MeasurementFailed(f"{progress.done} of {PROCESSES} jobs ended")
    instants = [float(text) for text in path.read_text().split()]
    first = min(instants)
    return [instant for instant in instants if instant < first + seconds]
