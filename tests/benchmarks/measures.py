"""How each row is measured.

Common to all: every system has a database of its own on the same server, emptied,
vacuumed and checkpointed before each measurement. Workers are warm: they have run
WARM_UP_JOBS jobs before a clock starts. To load a queue while they are up, they are stopped
(SIGSTOP), the jobs are enqueued and analyzed, and the clock starts when they are
continued; it ends when the database shows the last job finished. So neither start-up nor
enqueueing is in a drain rate, and the wake-up is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.errors import MeasurementFailed
from tests.benchmarks.processes import WorkerGroup
from tests.benchmarks.server import StatementCounter, is_transaction_control
from tests.benchmarks.system import Progress, System

ENQUEUE_WARM_UP = 50
COUNTED_ENQUEUES = 200
COUNTED_JOBS = 2000
IDLE_SECONDS = 30.0
MEMORY_SETTLE_SECONDS = 5.0
ARRIVAL_SECONDS = 15.0


@dataclass(frozen=True)
class Measured:
    """The figures of one measurement. *cut*: it hit the time limit and is not repeated."""

    figures: dict[str, float]
    note: str = ""
    cut: bool = False


def per_second(system: System, count: int, seconds: float) -> float:
    if seconds <= 0:
        raise MeasurementFailed(f"{system.title}: {count} jobs took no time")
    return count / seconds


def measure_enqueue(system: System) -> Measured:
    count = max(system.bench.jobs // 4, 1)
    system.reset()
    answer = system.enqueue_each("noop", count, warm_up=ENQUEUE_WARM_UP)
    return Measured({"rate": per_second(system, count, answer["seconds"])})


def measure_bulk(system: System) -> Measured:
    count = system.bench.jobs
    system.reset()
    answer = system.enqueue_bulk("noop", count, warm_up=ENQUEUE_WARM_UP)
    return Measured({"rate": per_second(system, count, answer["seconds"])})


def cut_note(system: System, done: int, count: int) -> str:
    return f"stopped after {system.bench.limit:.0f} s with {done:,} of {count:,} jobs done"


@contextmanager
def loaded_queue(
    system: System, group: WorkerGroup, task: str, count: int
) -> Iterator[Callable[[], float]]:
    """Enqueue *count* jobs behind the workers' back, and begin to count.

    Yields a function that lets the workers go and returns that moment.
    """
    system.begin_count()
    group.pause()
    system.enqueue_bulk(task, count)
    system.query("ANALYZE")

    def go() -> float:
        moment = time.time()
        group.resume()
        return moment

    try:
        yield go
    finally:
        group.resume()


def drain(
    system: System, group: WorkerGroup, task: str, count: int, limit: float
) -> tuple[float, Progress]:
    """Return jobs per second and how far the workers came."""
    with loaded_queue(system, group, task, count) as go:
        start = go()
        progress = system.wait_until_done(group, count, limit)
    return per_second(system, progress.done, progress.at - start), progress


def measure_drain(
    system: System, task: str, processes: int, *, logs: bool = False, warm_up: str = "noop"
) -> Measured:
    count = system.bench.jobs
    system.reset()
    with system.workers(processes, task=warm_up, logs=logs) as group:
        rate, progress = drain(system, group, task, count, system.bench.limit)
        if task.startswith("insert") and progress.complete:
            rows = system.query("SELECT count(*) FROM bench_entry")
            if rows != count:
                raise MeasurementFailed(f"{count} jobs wrote {rows} rows")
    if progress.complete:
        return Measured({"rate": rate})
    return Measured({"rate": rate}, cut_note(system, progress.done, count), cut=True)


def measure_stream(system: System) -> Measured:
    count = system.bench.jobs
    system.reset()
    with system.workers() as group:
        system.begin_count()
        answer = system.enqueue_each("noop", count)
        start = answer["started_at"]
        committed = start + answer["seconds"]
        already = system.count_done() >= count
        left = max(system.bench.limit - answer["seconds"], 0.0)
        progress = system.wait_until_done(group, count, left)
    done = progress.done
    rate = per_second(system, done, (committed if already else progress.at) - start)
    if progress.complete:
        return Measured({"rate": rate})
    return Measured({"rate": rate}, cut_note(system, done, count), cut=True)


def read_first_lines(path: Path, count: int) -> dict[int, float]:
    """Return the moments the `record` jobs began, waiting a while for the last ones."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while True:
        text = path.read_text() if path.exists() else ""
        moments = {int(n): float(at) for n, at in map(str.split, text.splitlines())}
        if len(moments) >= count:
            return moments
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"{len(moments)} of {count} jobs began")
        time.sleep(0.1)


def percentile(values: list[float], share: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * share), 1) - 1]


def measure_latency(system: System) -> Measured:
    count = system.bench.latency_samples
    path = system.bench.folder / f"{system.name}.latency"
    path.unlink(missing_ok=True)
    system.reset()
    with system.workers(BENCH_LATENCY_FILE=str(path)):
        answer = system.call_client("latency", "--count", count)
        began = read_first_lines(path, count)
    after_commit = [(began[n] - answer["committed"][n]) * 1000 for n in range(count)]
    after_call = [(began[n] - answer["called"][n]) * 1000 for n in range(count)]
    figures = {
        "p50": percentile(after_commit, 0.50),
        "p99": percentile(after_commit, 0.99),
        "call_p50": percentile(after_call, 0.50),
        "call_p99": percentile(after_call, 0.99),
    }
    return Measured(figures)


def measure_held(system: System) -> Measured:
    """Drain chunk after chunk while another session's snapshot keeps every dead row."""
    chunk = max(min(system.bench.jobs, system.bench.held_jobs // 2), 1)
    limit = system.bench.limit * 2
    rates: list[float] = []
    done = 0
    system.reset()
    with (
        system.workers() as group,
        system.bench.server.connect(system.database) as holder,
    ):
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM pg_class")
        started = time.monotonic()
        while done < system.bench.held_jobs + chunk:
            left = limit - (time.monotonic() - started)
            rate, progress = drain(system, group, "noop", chunk, max(left, 1.0))
            rates.append(rate)
            done += progress.done
            if not progress.complete or time.monotonic() - started > limit:
                break
        holder.execute("ROLLBACK")
    complete = done >= system.bench.held_jobs + chunk
    note = "" if complete else f"stopped after {limit:.0f} s with {done:,} jobs done"
    figures = {"first": rates[0], "last": rates[-1]}
    if len(rates) > 1:
        figures["ratio"] = rates[-1] / rates[0]
    return Measured(figures, note, cut=not complete)


def measure_memory(system: System) -> Measured:
    system.reset()
    with system.workers() as group:
        time.sleep(MEMORY_SETTLE_SECONDS)
        memory = group.memory()
    return Measured({"rss": memory["rss"], "pss": memory["pss"]})


def measure_statements(system: System) -> Measured:
    """Count statements, transaction control included, sent for an enqueue and for a job."""
    system.reset()
    with StatementCounter(system.bench.server, system.database) as counter:
        counter.start()
        system.enqueue_each("noop", 0, warm_up=ENQUEUE_WARM_UP)
        without = len(counter.read())
        counter.start()
        system.enqueue_each("noop", COUNTED_ENQUEUES, warm_up=ENQUEUE_WARM_UP)
        enqueued = len(counter.read()) - without
        system.reset()
        with (
            system.workers() as group,
            loaded_queue(system, group, "noop", COUNTED_JOBS) as go,
        ):
            counter.start()
            go()
            system.wait_until_done(group, COUNTED_JOBS, system.bench.limit)
            statements = counter.read()
    control = sum(map(is_transaction_control, statements))
    figures = {
        "enqueue": enqueued / COUNTED_ENQUEUES,
        "job": len(statements) / COUNTED_JOBS,
    }
    note = f"{control / COUNTED_JOBS:.3f} per job are BEGIN and COMMIT" if any(statements) else ""
    return Measured(figures, note)


def measure_idle(system: System) -> Measured:
    system.reset()
    with StatementCounter(system.bench.server, system.database) as counter:
        with system.workers():
            time.sleep(MEMORY_SETTLE_SECONDS)
            counter.start()
            time.sleep(IDLE_SECONDS)
            statements = counter.read()
    kinds: dict[str, int] = {}
    for statement in statements:
        text = " ".join(statement.split())[:48]
        kinds[text] = kinds.get(text, 0) + 1
    common = sorted(kinds.items(), key=lambda kind: -kind[1])[:4]
    note = "; ".join(f"{count} x {text}" for text, count in common if text)
    return Measured({"count": len(statements)}, note)


def measure_logs(system: System) -> Measured:
    quiet = measure_drain(system, "noop", 1)
    logging = measure_drain(system, "noop", 1, logs=True)
    off, on = quiet.figures["rate"], logging.figures["rate"]
    return Measured({"off": off, "on": on, "ratio": on / off})
