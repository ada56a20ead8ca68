"""What a measured system must offer, and what all of them share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from tests.benchmarks.environments import Environment, read_version
from tests.benchmarks.errors import MeasurementFailed, Unavailable
from tests.benchmarks.processes import WorkerGroup, run_json
from tests.benchmarks.server import Server

PEERS = Path(__file__).parent / "peers"
ROOT = Path(__file__).parents[2]
DJANGO = ("django", "psycopg[binary]")
WARM_UP_JOBS = 20
SETTLE_SECONDS = 1.0
REPORT_SECONDS = 15.0
CLIENT_SECONDS = 1800.0


@dataclass(frozen=True)
class Bench:
    """What a run is made of: the server, the folders and the limits."""

    server: Server
    cache: Path
    folder: Path  # of this run: logs and latency files
    python: str
    jobs: int
    held_jobs: int
    latency_samples: int
    limit: float  # seconds one measurement may take
    say: Callable[[str], None]


class System:
    """One system under measurement. Its docstring says which settings were chosen and why.

    An adapter gives the class attributes and `worker_command`; the scripts it names are in
    `peers/` and run in the system's own environment.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    requirements: ClassVar[tuple[str, ...]]
    minimum_python: ClassVar[tuple[int, int]] = (3, 11)
    shown_packages: ClassVar[tuple[str, ...]]
    client: ClassVar[str]
    settings_module: ClassVar[str | None] = None
    tables: ClassVar[tuple[str, ...]]
    mark: ClassVar[str]  # SQL: what tells jobs that are there from later ones
    done: ClassVar[str]  # SQL: how many jobs that came after the mark have finished well
    enqueuing: ClassVar[str]  # how bulk is done, for the report
    working: ClassVar[str]  # the worker's settings, for the report

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.database = "pgjobs_bench_" + self.name.replace("-", "_")
        self.environment = Environment(bench.cache / self.environment_name(), bench.python)
        self.versions: dict[str, str] = {}
        self._mark = 0

    # What an adapter may change

    def environment_name(self) -> str:
        return self.name

    def fingerprint(self) -> str:
        """Return what makes an installed environment out of date when it changes."""
        return ""

    def worker_command(self, *, logs: bool) -> list[str]:
        """Return the command of one worker process, without the interpreter."""
        raise NotImplementedError

    # What the rows use

    def prepare(self) -> None:
        """Install the packages and make the database. Raise Unavailable if that fails."""
        version = read_version(self.bench.python)
        if version is None or version < self.minimum_python:
            needed = ".".join(map(str, self.minimum_python))
            raise Unavailable(f"needs Python {needed} or newer (give one with --python)")
        self.environment.install(self.requirements, self.fingerprint())
        self.versions = self.environment.versions()
        self.bench.server.create_database(self.database)
        try:
            self.call_client("setup")
            self.reset()
        except (MeasurementFailed, psycopg.Error) as failure:
            raise Unavailable(f"cannot be set up: {failure}") from failure

    def variables(self, **more: str) -> dict[str, str]:
        """Return the environment variables of a client or worker."""
        variables = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PG", "DJANGO_"))},
            **self.bench.server.environment(self.database),
            "PYTHONPATH": str(PEERS),
            "PYTHONUNBUFFERED": "1",
            **more,
        }
        if self.settings_module is not None:
            variables["DJANGO_SETTINGS_MODULE"] = self.settings_module
        return variables

    def call_client(self, command: str, *arguments: object) -> Any:
        """Run a command of `peers/client.py` and return its answer."""
        line = [str(self.environment.python), str(PEERS / self.client), command]
        line += map(str, arguments)
        return run_json(line, self.variables(), self.bench.folder, CLIENT_SECONDS)

    def enqueue_bulk(self, task: str, count: int, warm_up: int = 0) -> dict[str, float]:
        answer: dict[str, float] = self.call_client(
            "bulk", "--task", task, "--count", count, "--warm-up", warm_up
        )
        return answer

    def enqueue_each(self, task: str, count: int, warm_up: int = 0) -> dict[str, float]:
        answer: dict[str, float] = self.call_client(
            "single", "--task", task, "--count", count, "--warm-up", warm_up
        )
        return answer

    def query(self, statement: str, *parameters: object) -> Any:
        return self.bench.server.query(self.database, statement, *parameters)

    def begin_count(self) -> None:
        """Let `count_done` count jobs that come from now on.

        To count all takes the server the longer the more have run, from the time that is measured.
        """
        self._mark = int(self.query(self.mark) or 0)

    def count_done(self) -> int:
        return int(self.query(self.done, self._mark))

    def reset(self) -> None:
        """Empty the tables and settle the server, so that every measurement starts alike."""
        self.query(f"TRUNCATE {', '.join(self.tables)} RESTART IDENTITY CASCADE")
        self.settle()

    def settle(self) -> None:
        """Let the server do now what it would else do during a measurement."""
        self.query("VACUUM ANALYZE")
        self.query("CHECKPOINT")

    @contextmanager
    def workers(
        self,
        processes: int = 1,
        *,
        task: str = "noop",
        logs: bool = False,
        arguments: Sequence[str] = (),
        **variables: str,
    ) -> Iterator[WorkerGroup]:
        """Run worker processes, warmed up with jobs of *task*; yield their group; stop them."""
        log_path = self.bench.folder / f"{self.name}.log"
        log_path.write_bytes(b"")
        group = WorkerGroup(log_path)
        command = [str(self.environment.python), *self.worker_command(logs=logs), *arguments]
        try:
            for _ in range(processes):
                group.start(command, self.variables(**variables), self.bench.folder)
            self.begin_count()
            self.enqueue_bulk(task, WARM_UP_JOBS)
            self.wait_until_done(group, WARM_UP_JOBS, limit=60.0)
            time.sleep(SETTLE_SECONDS)
            yield group
            group.check()
        finally:
            group.stop()

    def wait_until_done(self, group: WorkerGroup, total: int, limit: float) -> Progress:
        """Watch the database until *total* jobs are done or *limit* seconds are over.

        They are counted from `begin_count` on.
        """
        start = reported = time.time()
        before = self.count_done()
        while True:
            done, now = self.count_done(), time.time()
            if done >= total or now - start > limit:
                return Progress(done=done, at=now, complete=done >= total)
            group.check()
            if now - reported > REPORT_SECONDS:
                reported = now
                self.bench.say(f"    {self.title}: {done:,} of {total:,} jobs done")
            time.sleep(choose_pause(done - before, total - done, now - start))

    def describe(self) -> dict[str, str]:
        versions = {name: self.versions.get(name.lower()) for name in self.shown_packages}
        shown = [f"{name} {version}" for name, version in versions.items() if version]
        return {
            "packages": ", ".join(shown),
            "bulk enqueue": self.enqueuing,
            "worker": self.working,
        }


@dataclass(frozen=True)
class Progress:
    """How many jobs were done *at* a moment (seconds since the epoch)."""

    done: int
    at: float
    complete: bool


def choose_pause(done: int, left: int, elapsed: float) -> float:
    """Return how long to sleep before looking again, in seconds.

    Less and less the nearer the end is, so that a rate is exact to about 1 %; and never
    long for the time already passed, because the first rates mislead. That is some twenty
    looks at a drain, which cost the server one or two percent of it.
    """
    remaining = elapsed * left / done if done else elapsed
    return min(max(min(remaining * 0.3, elapsed * 0.15), 0.004), 1.0)


def module_command(module: str, *arguments: object) -> list[str]:
    return ["-m", module, *map(str, arguments)]
