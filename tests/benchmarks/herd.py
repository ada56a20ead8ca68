"""The rows about idle workers: what one job costs beside so many of them, and how soon it begins.

The workers are commands of up to four processes with two threads each. All of them are idle
before each part; rates are medians. A first burst, which is not counted, warms the workers up.
Commits are those of the whole database, the enqueue's among them; what as many workers without jobs
make in as long a time is taken off, and is a figure of its own.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.benchmarks.errors import MeasurementFailed
from tests.benchmarks.measures import Measured, percentile, read_first_lines
from tests.benchmarks.processes import WorkerGroup
from tests.benchmarks.system import System, module_command

ALONE_JOBS = 1_350
PAUSES = (0.02, 0.06)
STEADY_RATE = 100
STEADY_SECONDS = 19
ENQUEUED = 1_500
BURST = 20_000
# How often each rate is measured.
TIMES = 5
READY_SECONDS = 120.0
IDLE_SECONDS = 7.0
# After so long every session that is idle has told the server what it did.
COUNTERS_SECONDS = 11.0
# With what comes before that, as many seconds as two leases: their renewals commit, too.
WINDOW_SECONDS = 30.0
TICKS = os.sysconf("SC_CLK_TCK")
JOB = "INSERT INTO pgjobs_job (task_path, args) VALUES ('ours_tasks.record', %s)"
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
BACKENDS = "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database()"
LIVE = "SELECT count(*) FROM pgjobs_worker WHERE ended_at IS NULL"


def measure_herd(system: System, workers: int) -> Measured:
    figures: dict[str, float] = {}
    path = system.bench.folder / f"{system.name}.herd"
    system.reset()
    with idle_workers(system, workers, BENCH_LATENCY_FILE=str(path)) as group:
        if workers:
            pause = WINDOW_SECONDS - COUNTERS_SECONDS
            per_second = count_commits(system, lambda: time.sleep(pause), 0.0) / WINDOW_SECONDS
            figures["idle"] = per_second
            figures |= measure_alone(system, group, path, per_second)
            figures["steady"] = measure_steady(system, path, per_second)
            measure_burst(system, group)
            figures["burst"] = median(lambda: measure_burst(system, group))
        figures["enqueue"] = median(lambda: enqueue_rate(system, group, 1))
        figures["enqueue4"] = median(lambda: enqueue_rate(system, group, 4))
    if workers:
        system.reset()
        with idle_workers(system, workers, "--no-listen") as group:
            figures["polled"] = median(lambda: enqueue_rate(system, group, 1))
        figures["ratio"] = figures["enqueue"] / figures["polled"]
    return Measured(figures)


def median(measure: Callable[[], float]) -> float:
    """Return the middle of TIMES measurements."""
    return statistics.median(measure() for _ in range(TIMES))


@contextmanager
def idle_workers(
    system: System, count: int, *flags: str, **variables: str
) -> Iterator[WorkerGroup]:
    """Run so many worker processes that have nothing to do; stop them."""
    log_path = system.bench.folder / f"{system.name}.log"
    log_path.write_bytes(b"")
    group = WorkerGroup(log_path)
    each = 4 if count % 4 == 0 else 1
    command = module_command("django", "runjobs", "-c", 2, "-v", 0, "--no-reload", *flags)
    command = [str(system.environment.python), *command, "--processes", str(each)]
    try:
        for _ in range(count // each):
            group.start(command, system.variables(**variables), system.bench.folder)
        wait_until(group, lambda: system.query(LIVE) >= count, "not all workers were ready")
        # What they did at their start is not what they do while idle.
        time.sleep(COUNTERS_SECONDS if count else 0.0)
        yield group
        group.check()
    finally:
        group.stop()


def wait_until(group: WorkerGroup, condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        group.check()
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"{complaint} in {READY_SECONDS:.0f} s")
        time.sleep(0.05)


def count_commits(system: System, act: Callable[[], None], idle: float) -> float:
    """Return how often the database commits because of *act*; *idle* times a second anyhow."""
    before, start = system.query(COMMITS), time.monotonic()
    act()
    time.sleep(COUNTERS_SECONDS)
    return float(system.query(COMMITS) - before) - idle * (time.monotonic() - start)


def measure_alone(system: System, group: WorkerGroup, path: Path, idle: float) -> dict[str, float]:
    """Enqueue a job, wait until it begins, and so on, with pauses of PAUSES."""
    path.unlink(missing_ok=True)
    committed: list[float] = []
    spent: dict[str, float] = {}

    def run() -> None:
        server, own = cpu_of_server(system), cpu_of_groups(group)
        with system.bench.server.connect(system.database) as connection:
            for number in range(ALONE_JOBS):
                connection.execute(JOB, [json.dumps([number])])
                committed.append(time.time())
                wait_for_lines(path, number + 1)
                time.sleep(random.uniform(*PAUSES))
            spent["server"] = cpu_of_server(system) - server
            spent["workers"] = cpu_of_groups(group) - own

    commits = count_commits(system, run, idle)
    began = read_first_lines(path, ALONE_JOBS)
    latencies = [1000 * (began[number] - at) for number, at in enumerate(committed)]
    return {
        "commits": commits / ALONE_JOBS,
        "server": 1000 * spent["server"] / ALONE_JOBS,
        "workers": 1000 * spent["workers"] / ALONE_JOBS,
        "p50": percentile(latencies, 0.50),
        "p99": percentile(latencies, 0.99),
    }


def wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"job {count} did not begin")
        time.sleep(0.001)


def measure_steady(system: System, path: Path, idle: float) -> float:
    """Return the commits per job at STEADY_RATE jobs a second."""
    count = STEADY_RATE * STEADY_SECONDS
    path.unlink(missing_ok=True)

    def run() -> None:
        with system.bench.server.connect(system.database) as connection:
            start = time.monotonic()
            for number in range(count):
                time.sleep(max(0.0, start + number / STEADY_RATE - time.monotonic()))
                connection.execute(JOB, [json.dumps([number])])
        wait_for_lines(path, count)

    return count_commits(system, run, idle) / count


def measure_burst(system: System, group: WorkerGroup) -> float:
    """Return the rate at which idle workers run BURST jobs that appear at once."""
    system.settle()
    time.sleep(IDLE_SECONDS)
    system.begin_count()
    answer = system.enqueue_bulk("noop", BURST)
    start = answer["started_at"] + answer["seconds"]
    progress = system.wait_until_done(group, BURST, system.bench.limit)
    if not progress.complete:
        raise MeasurementFailed(f"{progress.done:,} of {BURST:,} jobs ended")
    return BURST / max(progress.at - start, 0.001)


def enqueue_rate(system: System, group: WorkerGroup, clients: int) -> float:
    """Return how many jobs so many clients enqueue in a second, one by one."""
    time.sleep(IDLE_SECONDS if group.processes else 0.0)
    with ThreadPoolExecutor(clients) as pool:
        answers = list(
            pool.map(
                lambda _: system.enqueue_each("noop", ENQUEUED // clients, warm_up=20),
                range(clients),
            )
        )
    return sum(ENQUEUED // clients / answer["seconds"] for answer in answers)


def cpu_of_server(system: System) -> float:
    """Return the processor time of all sessions of the database, in seconds."""
    return sum(map(cpu_of, system.query(BACKENDS)))


def cpu_of_groups(group: WorkerGroup) -> float:
    """Return the processor time of the workers, with the children of supervisors, in seconds."""
    leaders = {process.pid for process in group.processes}
    total = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and {int(entry.name), parent_of(int(entry.name))} & leaders:
            total += cpu_of(int(entry.name))
    return total


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if it is gone."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def cpu_of(pid: int) -> float:
    """Return the processor time of a process so far, in seconds; 0 if it is gone."""
    fields = stat_of(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def stat_of(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state on; nothing if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []
