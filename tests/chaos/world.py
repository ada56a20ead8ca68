"""The servers, the proxy in front of them and the workers of one run."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from django.db import connections

from example_project.database import parse_url
from tests.chaos import journal as notes
from tests.chaos.journal import Journal
from tests.chaos.site import Site
from tests.chaos.standby import DATABASE, Pair
from tests.helpers import READY, WorkerProcess
from tests.proxy import TcpProxy

LEASE_SECONDS = 5.0
# What a worker that stops may take on a machine that has other things to do.
PATIENCE_SECONDS = 120.0
EXIT_UNREACHABLE, EXIT_STUCK = 3, 75
GIVEN_UP = "does not end: this process is given up"
MODULES = ["tests.chaos.tasks", "tests.worker.dirt", "tests.worker.nasty"]
# Flags of one worker after the other; the last of these connects past the proxy.
FLAGS: list[list[str]] = [
    ["-c", "4"],
    ["-c", "3", "--processes", "2"],
    ["-c", "2", "--no-listen", "--poll-interval", "0.5"],
    ["-c", "4"],
]
DIRECT = 3


def now() -> str:
    """Return the time as the logs of workers and servers have it."""
    return time.strftime("%H:%M:%S", time.gmtime())


class Crew:
    """One `runjobs`, and the one that is started in its place when it has ended."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.flags = FLAGS[number % len(FLAGS)]
        self.is_direct = number % len(FLAGS) == DIRECT
        # Whoever signals, stops or replaces the worker holds it.
        self.lock = threading.Lock()
        self.generation = 0
        self.worker = self._start()

    @property
    def is_supervised(self) -> bool:
        """Whether the first process only looks after others."""
        return "--processes" in self.flags

    def _start(self) -> WorkerProcess:
        self.generation += 1
        self.started_at = time.time()
        world = self.world
        return WorkerProcess(
            *(*self.flags, "--log-format", "json", "--lease-seconds", str(LEASE_SECONDS)),
            *("--shutdown-timeout", "3", "--name", f"crew{self.number}.{self.generation}"),
            settings={"PGJOBS": {"TASK_MODULES": MODULES}},
            env={notes.VARIABLE: world.journal.path},
            database=world.pair.url if self.is_direct else world.proxy.url,
        )

    def replace(self) -> None:
        """Start a new worker in the place of one that has ended; keep its log."""
        self._keep_log()
        self.worker.close()
        self.worker = self._start()

    def kill(self) -> None:
        """Kill the worker in the middle of everything."""
        self.worker.kill()
        self.replace()

    def stop(self, number: int, allowed: tuple[int, ...]) -> None:
        """Ask the worker to end; what it returns must be among *allowed*."""
        if not self.worker.is_running:
            return
        self.worker.send(number)
        try:
            code = self.worker.wait(timeout=PATIENCE_SECONDS)
        except AssertionError:
            self.world.found(f"{self} did not end within {PATIENCE_SECONDS:g} s of {number}")
            self.worker.kill()
            return
        # Before it says that it is ready, Python may not have come to our handlers yet.
        is_early = code == -number and not self._was_ready()
        if code not in allowed and not is_early and not self._may_have_ended(code):
            self.world.found(f"{self} ended with {code} when it was asked to by signal {number}")

    def look_after(self) -> None:
        """Start the worker again if it has ended; nobody had asked it to."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            code = self.worker.process.poll()
            if code is None:
                return
            if not self._may_have_ended(code):
                self.world.found(f"{self} ended with {code}, unasked:\n{self._last_words()}")
            self.replace()
        finally:
            self.lock.release()

    def _may_have_ended(self, code: int) -> bool:
        # A worker that starts while there is no server says so and ends, and so does a supervisor
        # none of whose children has been ready. Later an outage ends nobody.
        was_down = self.world.was_down_since(self.started_at)
        is_outage = code == EXIT_UNREACHABLE and was_down and not self._was_ready()
        # A job in a statement that waits for somebody's lock cannot be interrupted.
        is_given_up = code == EXIT_STUCK and GIVEN_UP in self.worker.output()
        # HUP, before Python has come to our handlers.
        is_early = code == -signal.SIGHUP and not self._was_ready()
        return is_outage or is_given_up or is_early or self._was_killed_by_a_job()

    def _was_killed_by_a_job(self) -> bool:
        return any(
            entry.kind == notes.DYING and entry.process == self.worker.pid
            for entry in self.world.journal.read()
        )

    def _was_ready(self) -> bool:
        return READY.search(self.worker.output()) is not None

    def _last_words(self) -> str:
        return "\n".join(self.worker.output().splitlines()[-15:])

    def _keep_log(self) -> None:
        path = self.world.folder / f"{self}.log"
        path.write_text(self.worker.output())

    def close(self) -> None:
        """Stop the worker for good."""
        with self.lock:
            self.stop(signal.SIGTERM, (0,))
            self._keep_log()
            self.worker.close()

    def __str__(self) -> str:
        return f"crew{self.number}.{self.generation}"


class World:
    """Everything that a run needs, and what went wrong so far."""

    def __init__(self, folder: Path, *, seed: str, workers: int, follows: bool) -> None:
        self.folder = folder
        self.random = random.Random(f"{seed} world")
        self.journal = Journal(folder / "journal")
        Path(self.journal.path).touch()
        self.findings: list[str] = []
        self.count = workers
        self.crews: list[Crew] = []
        self._site: Site | None = None
        self._outages: list[float] = []
        self._outages_open = 0
        self.pair = Pair(folder, follows=follows)
        self.pair.start()
        self.proxy = TcpProxy(self._settings())
        # Nobody has connected yet: Django's default database lies behind the proxy from now on.
        connections.settings["default"].update(parse_url(self.proxy.url))

    def _settings(self) -> dict[str, Any]:
        port = self.pair.primary.port
        return {"NAME": DATABASE, "USER": "postgres", "HOST": "127.0.0.1", "PORT": str(port)}

    def start_workers(self) -> None:
        """Start the workers, and wait until each has said that it is ready."""
        self.crews = [Crew(self, number) for number in range(self.count)]
        for crew in self.crews:
            crew.worker.wait_until_ready(timeout=PATIENCE_SECONDS)

    @property
    def site(self) -> Site:
        """The web servers, and the workers over HTTP."""
        assert self._site is not None
        return self._site

    def start_site(self) -> None:
        """Start web servers, and workers over HTTP."""
        self._site = Site(self.folder, self.journal.path, MODULES)

    def look_after(self) -> None:
        """Start what has ended again."""
        for crew in self.crews:
            crew.look_after()
        if self._site is not None:
            self.findings += self._site.look_after()

    def found(self, what: str) -> None:
        """Note that something went wrong."""
        self.findings.append(f"{now()} {what}")
        print(f"FOUND {self.findings[-1]}", flush=True)

    def lead_to(self, port: int) -> None:
        """Let the proxy lead to another server, from the next connection on."""
        self.proxy.settings["PORT"] = str(port)

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Mark the time during which the server cannot be relied on."""
        self._outages_open += 1
        try:
            yield
        finally:
            self._outages_open -= 1
            self._outages.append(time.time())

    def was_down_since(self, instant: float) -> bool:
        """Return whether the server was not there at some time after *instant*."""
        return self._outages_open > 0 or any(end >= instant for end in self._outages)

    def pick(self) -> Crew:
        """Return one of the workers."""
        return self.random.choice(self.crews)

    def child_of(self, crew: Crew) -> psutil.Process | None:
        """Return one of the processes that a supervisor has started."""
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(crew.worker.pid).children()
            return self.random.choice(children) if children else None
        return None

    def stop_workers(self) -> None:
        """Stop all workers in good order."""
        for crew in self.crews:
            crew.close()
        if self._site is not None:
            self.findings += self._site.stop_workers()

    def close(self) -> None:
        """End everything."""
        for crew in self.crews:
            with contextlib.suppress(OSError):
                crew.worker.close()
        if self._site is not None:
            self._site.close()
        self.proxy.close()
        self.pair.remove()
