"""The row about hours of work, in five minutes: jobs at a steady rate, and tables that stay small.

Finished jobs are kept for KEPT_SECONDS, so that they are pruned as fast as they come, and
autovacuum runs as often as it does by the server's own settings. While a table is used for the
first time it grows, so its size is looked at from GROWN_SECONDS on. All the while a job now and
then tells how soon it begins.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.errors import MeasurementFailed
from tests.benchmarks.measures import Measured, percentile, read_first_lines
from tests.benchmarks.system import System

RATE = 5_000
SECONDS = 300.0
KEPT_SECONDS = 20
# How often a batch is inserted, the tables are weighed, and a job tells how soon it begins.
BATCH_SECONDS = 0.1
WEIGH_SECONDS = 5.0
PROBE_SECONDS = 0.5
# After the tables have been vacuumed once at their full size.
GROWN_SECONDS = 120.0
# The sizes at the begin and at the end are the largest within so long.
SPAN_SECONDS = 60.0
PROCESSES = 1

BATCH = """
INSERT INTO pgjobs_job (task_path, args)
SELECT 'ours_tasks.noop', '[1]' FROM generate_series(1, %s)
"""
PROBE = "INSERT INTO pgjobs_job (task_path, args) VALUES ('ours_tasks.record', %s)"
WAITING = "SELECT count(*) FROM pgjobs_job_live WHERE status = 'ready'"
SIZES = """
SELECT json_object_agg(relname, pg_total_relation_size(oid))::text
FROM pg_class WHERE relname IN ('pgjobs_job_live', 'pgjobs_job_finished')
"""
VACUUMS = """
SELECT min(autovacuum_count) FROM pg_stat_user_tables
WHERE relname IN ('pgjobs_job_live', 'pgjobs_job_finished')
"""
MIB = 1024 * 1024


class Soak:
    """What is seen while jobs come."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.started_at = time.monotonic()
        self.inserted = 0
        self.most_waiting = 0
        self.probes: list[float] = []
        self.sizes: list[tuple[float, dict[str, int]]] = []
        self.failure: Exception | None = None
        self._ended = threading.Event()

    @property
    def age(self) -> float:
        return time.monotonic() - self.started_at

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Insert jobs all the while, from a thread."""
        thread = threading.Thread(target=self._feed, name="feed")
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _feed(self) -> None:
        try:
            with self.system.bench.server.connect(self.system.database) as connection:
                while not self._ended.wait(BATCH_SECONDS):
                    count = int(self.age * RATE) - self.inserted
                    connection.execute(BATCH, [count])
                    self.inserted += count
                    if self.age >= len(self.probes) * PROBE_SECONDS:
                        connection.execute(PROBE, [json.dumps([len(self.probes)])])
                        self.probes.append(time.time())
        except Exception as failure:  # it is raised where it is waited for
            self.failure = failure

    def weigh(self) -> None:
        """Note how large the tables are now, and how many jobs wait."""
        if self.failure is not None:
            raise MeasurementFailed(f"the feed ended: {self.failure}") from self.failure
        self.sizes.append((self.age, json.loads(self.system.query(SIZES))))
        self.most_waiting = max(self.most_waiting, self.system.query(WAITING))

    def largest(self, table: str, begin: float) -> int:
        """Return the largest size of a table from *begin* on, for SPAN_SECONDS."""
        return max(
            sizes[table] for age, sizes in self.sizes if begin <= age <= begin + SPAN_SECONDS
        )

    def growth(self, table: str) -> float:
        """Return the size of a table at the end beside that at GROWN_SECONDS."""
        end = self.largest(table, SECONDS - SPAN_SECONDS)
        return end / self.largest(table, GROWN_SECONDS)


def measure_soak(system: System) -> Measured:
    path = system.bench.folder / f"{system.name}.soak"
    path.unlink(missing_ok=True)
    system.reset()
    vacuums = system.query(VACUUMS)
    with system.workers(PROCESSES, BENCH_LATENCY_FILE=str(path), BENCH_RETENTION=str(KEPT_SECONDS)):
        soak = Soak(system)
        with soak.feeding():
            while soak.age < SECONDS:
                time.sleep(WEIGH_SECONDS)
                soak.weigh()
        latencies = latencies_of(path, soak.probes)
    live, finished = "pgjobs_job_live", "pgjobs_job_finished"
    return Measured(
        {
            "rate": soak.inserted / SECONDS,
            "waiting": float(soak.most_waiting),
            "p50": percentile(latencies, 0.50),
            "p99": percentile(latencies, 0.99),
            "live": soak.sizes[-1][1][live] / MIB,
            "finished": soak.sizes[-1][1][finished] / MIB,
            "growth": max(soak.growth(live), soak.growth(finished)),
            "vacuums": float(system.query(VACUUMS) - vacuums),
        }
    )


def latencies_of(path: Path, probes: list[float]) -> list[float]:
    """Return how long after its commit each probe began, in milliseconds."""
    began = read_first_lines(path, len(probes))
    return [1000 * (began[number] - committed) for number, committed in enumerate(probes)]
