"""What the tests of the worker share: options, claims by hand, and a worker in a thread."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

from asgiref.sync import SyncToAsync
from django.db import connections

from django_pgjobs import Task
from django_pgjobs.choosing import Rooms
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import HEAD, ClaimedRow, Floor, Lane, Taker
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import name_schema
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.outcome_statements import resolution, writings
from django_pgjobs.worker.process import worker_process as runner_module
from django_pgjobs.worker.process.parent import Parent
from django_pgjobs.worker.process.signal_pipe import SignalPipe
from django_pgjobs.worker.process.worker_process import WorkerProcess
from django_pgjobs.worker.running.async_slots import AsyncSlots
from django_pgjobs.worker.running.calling import announce_finish, make_attempt, run_in_thread
from django_pgjobs.worker.running.capacity import SlotCallbacks
from django_pgjobs.worker.running.outcome import Outcome
from django_pgjobs.worker.running.slots import Slots
from django_pgjobs.worker.state import Options
from tests.factories import make_worker
from tests.helpers import WAIT_SECONDS, wait_until

DEFAULT = Lane("default", "default")
# Longer than any test: who is found by the poll alone is not found.
NEVER = 3600.0


def make_options(**changes: Any) -> Options:
    """Return the options of a worker with two slots that polls by notification only."""
    given: dict[str, Any] = {
        "database": "default",
        "backends": ("default",),
        "concurrency": 2,
        "async_concurrency": 100,
        "lease": 60.0,
        "poll_interval": NEVER,
        "shutdown_timeout": 10.0,
        "timeout_grace": 5.0,
        "retention": None,
        "failed_retention": None,
        "max_attempts": 25,
        "max_losses": 3,
        "max_payload_bytes": 262_144,
        "listen": True,
        "unknown_fails": False,
        "name": "test:1",
    }
    return Options(**(given | changes))


# Whose text in an array needs care.
ODD_NAMES = ("NULL", " a ", "a,b", "{a}", 'a"b', "a\\b", '\\"', "a\tb", "'%s' %(a)s", "π")


def claim(
    connection: OwnConnection,
    worker_id: int,
    max_jobs: int = 10,
    *,
    lanes: Iterable[Lane] = (DEFAULT,),
    floors: Mapping[Lane, Floor] | None = None,
    detailed: bool = False,
    detailed_paths: Iterable[str] = (),
    passed_over_paths: Iterable[str] = (),
    rooms: tuple[int, int] | None = None,
) -> list[ClaimedRow]:
    """Claim jobs as a worker does, in the order in which it runs them."""
    taker = Taker(
        worker_id=worker_id,
        worker_name="test:1",
        passed_over_paths=list(passed_over_paths),
        detailed=detailed,
        detailed_paths=list(detailed_paths),
    )
    asked_at = time.monotonic()
    places = dict.fromkeys(lanes, HEAD) | dict(floors or {})
    take = partial(
        claims.send_claim,
        floors=places,
        rooms=Rooms(*(rooms or (max_jobs, max_jobs))),
        max_jobs=max_jobs,
        taker=taker,
    )
    [rows] = connection.round_trip([take])
    return claims.claimed_rows(rows, asked_at)


def write(connection: OwnConnection, *batch: tuple[Attempt, Outcome]) -> set[int]:
    """Write outcomes in one round trip; return the ids of the jobs that were changed."""
    answers = connection.round_trip([*(each.send for each in writings(batch)), resolution(batch)])
    return {row[0] for rows in answers[:-1] for row in rows}


def ids(rows: Iterable[ClaimedRow]) -> list[int]:
    """Return the ids of claimed jobs, in order."""
    return [row.id for row in rows]


def row_of_job(job_id: int, task_path: str = "tests.tasks.add", **columns: Any) -> ClaimedRow:
    """Return what a claim of a job returns."""
    given: dict[str, Any] = {
        "id": job_id,
        "claim": 1,
        "attempts": 1,
        "max_attempts": None,
        "lost_count": 0,
        "max_losses": None,
        "timeout": None,
        "priority": 0,
        "backend": "default",
        "queue_name": "default",
        "task_path": task_path,
        "args": "[1, 2]",
        "kwargs": "{}",
        "waited": 0.0,
        "detail": None,
        "interruptions": 0,
    }
    return ClaimedRow(**(given | columns))


def make_attempt_of(job_id: int, task_path: str = "tests.tasks.add", **columns: Any) -> Attempt:
    """Return an attempt of a claimed job that need not be in the table."""
    return make_attempt(row_of_job(job_id, task_path, **columns), make_options())


class Bench:
    """Claims one job at a time and runs it in the test's own thread, as a slot would."""

    def __init__(self, connection: OwnConnection, **options: Any) -> None:
        self.connection = connection
        self.options = make_options(**options)
        self.worker_id = make_worker()

    def claim(self) -> Attempt:
        """Claim the next job."""
        [row] = claim(self.connection, self.worker_id, 1)
        return make_attempt(row, self.options)

    def run(self, attempt: Attempt | None = None) -> Outcome:
        """Run an attempt, of the next job by default, and write its outcome."""
        attempt = attempt or self.claim()
        outcome = run_in_thread(attempt, self.options)
        if not outcome.stored and writings([(attempt, outcome)]):
            write(self.connection, (attempt, outcome))
        announce_finish(attempt, outcome)
        return outcome


def run_in_one_slot(
    kind: type[Slots] | type[AsyncSlots], *calls: tuple[Task, list[Any]]
) -> list[Outcome]:
    """Run tasks one after the other in one slot, without a table; return their outcomes."""
    done: queue.Queue[Outcome] = queue.Queue()
    crashes: list[str] = []
    slots = kind(
        make_options(concurrency=1, async_concurrency=1),
        SlotCallbacks(
            on_start=lambda attempt: None,
            on_done=lambda attempt, outcome: done.put(outcome),
            on_empty=lambda: None,
            on_crash=crashes.append,
        ),
    )
    outcomes = []
    try:
        for number, (task, args) in enumerate(calls, start=1):
            slots.submit([make_attempt_of(number, task.module_path, args=json.dumps(args))])
            outcomes.append(done.get(timeout=WAIT_SECONDS))
    finally:
        slots.stop()
        assert slots.join(WAIT_SECONDS)
        close_shared_thread()
    assert not crashes
    return outcomes


class ThreadedWorker:
    """A whole worker, every role of it, in threads of the test process."""

    def __init__(self, *, is_child: bool = False, **options: Any) -> None:
        self.pipe = SignalPipe()
        self._supervisor, end = socket.socketpair()
        with end:
            parent = Parent(end.fileno()) if is_child else None
        self.runner = WorkerProcess(make_options(**options), self.pipe, parent)
        self.exit_code: int | None = None
        self.left_at_once = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="runner", daemon=True)

    @property
    def id(self) -> int:
        """The id of the worker's row in the table, as the worker knows it."""
        return self.runner.state.worker_id

    @property
    def listens(self) -> bool:
        """Does it hear notifications?"""
        return self.runner._connections["upkeep"].listens

    @property
    def is_running(self) -> bool:
        """Whether the worker has not ended yet."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the worker and wait until it is registered."""
        self._thread.start()
        wait_until(lambda: self.id or not self.is_running)

    def join(self) -> int | None:
        """Wait for the end of the worker and return its exit code."""
        self._thread.join(WAIT_SECONDS)
        assert not self.is_running, "the worker does not end"
        return self.exit_code

    def wake(self) -> None:
        """Let every role look now at what it looks at from time to time."""
        for part in self.runner._roles():
            part.wake()

    def stop(self) -> int | None:
        """Ask the worker to stop, wait for it and return its exit code."""
        self.runner.ask_to_stop("the test is over")
        return self.join()

    def send(self, *numbers: int) -> None:
        """Let signals arrive, as their handlers do: their numbers are in the pipe."""
        os.write(self.pipe._writer, bytes(numbers))

    def close(self) -> None:
        """Stop the worker and close what the roles have left behind."""
        if self._is_closed:
            return
        self._is_closed = True
        self.stop()
        name_schema(None)
        if self.left_at_once:
            self.end_threads()
        close_shared_thread()
        for connection in self.runner._connections.values():
            connection.close()  # a role that crashed has not done so
        for end in (self.pipe._reader, self.pipe._writer):
            os.close(end)
        self._supervisor.close()

    def end_threads(self) -> None:
        """End every thread, as the end of the process would."""
        runner = self.runner
        for part in (*runner._roles(), runner.slots, runner.async_slots):
            part.stop()
        for part in (*runner._roles(), runner.slots, runner.async_slots):
            assert part.join(WAIT_SECONDS)

    def is_run_by(self, thread: threading.Thread) -> bool:
        """Is it a thread that may end the worker's process?"""
        return thread in (self._thread, self.runner.vitals._thread)

    def leave_at_once(self, code: int) -> None:
        """End the calling thread of the worker, where a process of its own would end."""
        self.left_at_once = True
        # Or it would end the process of the tests as well.
        self.runner.vitals.stop()
        self.exit_code = code
        raise SystemExit

    def _run(self) -> None:
        with _exits.of(self):
            with contextlib.suppress(SystemExit):
                self.exit_code = self.runner.run()


class Exits:
    """While workers run in threads, `os._exit` ends the one whose thread calls it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: list[ThreadedWorker] = []
        self._end_process = os._exit
        self._patch = mock.patch.object(runner_module.os, "_exit", self._leave)

    @contextlib.contextmanager
    def of(self, worker: ThreadedWorker) -> Iterator[None]:
        """Let *worker* be one of them."""
        with self._lock:
            if not self._workers:
                self._patch.start()
            self._workers.append(worker)
        try:
            yield
        finally:
            with self._lock:
                self._workers.remove(worker)
                if not self._workers:
                    self._patch.stop()

    def _leave(self, code: int) -> None:
        thread = threading.current_thread()
        for worker in self._workers:
            if worker.is_run_by(thread):
                worker.leave_at_once(code)
        self._end_process(code)  # which a task has forked


_exits = Exits()


def close_shared_thread() -> None:
    """Close the connections of the thread in which async jobs use the ORM."""
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@dataclass
class Gate:
    """Where a task of the test waits until the test lets it through."""

    name: str
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    opened: threading.Event = field(default_factory=threading.Event)

    def wait_entered(self, times: int = 1) -> None:
        """Wait until that many more tasks stand at the gate."""
        for _ in range(times):
            came = self.entered.acquire(timeout=WAIT_SECONDS)
            assert came, f"nobody came to the gate {self.name}"

    def open(self) -> None:
        """Let everybody through, now and later."""
        self.opened.set()

    def passed(self) -> Iterator[None]:
        """Yield now and then while the gate is closed; for the tasks."""
        self.entered.release()
        while not self.opened.wait(0.01):
            yield


@contextlib.contextmanager
def counted_round_trips() -> Iterator[dict[str, list[int]]]:
    """Count what the worker's own connections do: role -> statements of each round trip.

    A cursor that is opened counts as one statement.
    """
    counts: dict[str, list[int]] = {}
    round_trip, cursor = OwnConnection.round_trip, OwnConnection.cursor

    def counting_round_trip(self: OwnConnection, sends: Any) -> Any:
        counts.setdefault(self.role, []).append(len(sends))
        return round_trip(self, sends)

    def counting_cursor(self: OwnConnection) -> Any:
        counts.setdefault(self.role, []).append(1)
        return cursor(self)

    with (
        mock.patch.object(OwnConnection, "round_trip", counting_round_trip),
        mock.patch.object(OwnConnection, "cursor", counting_cursor),
    ):
        yield counts


StartThread = Callable[..., ThreadedWorker]
