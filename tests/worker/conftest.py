"""Fixtures of the worker inside the test process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connections

from django_pgjobs import signals
from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import make_worker
from tests.proxy import TcpProxy
from tests.worker import tasks
from tests.worker.keeping import Keep, Kept
from tests.worker.planning import Claiming, Make
from tests.worker.refusing import allow, refuse_rows
from tests.worker.support import Bench, Gate, StartThread, ThreadedWorker


@pytest.fixture(autouse=True)
def _nobody_reads_the_log_of_django_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in production: without this pytest's handlers do, and every signal would be sent."""
    monkeypatch.setattr(logging.getLogger(TASKS_PACKAGE), "disabled", True)
    signals._answers.clear()


@pytest.fixture
def open_own(transactional_db: None) -> Iterator[Callable[[], OwnConnection]]:
    """Open connections as the worker's roles do."""
    opened: list[OwnConnection] = []

    def open_one() -> OwnConnection:
        opened.append(OwnConnection("default", "test"))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def own(open_own: Callable[[], OwnConnection]) -> OwnConnection:
    """One connection as the worker's roles have."""
    return open_own()


@pytest.fixture
def worker(transactional_db: None) -> int:
    """The id of a registered worker, in whose name a test claims by hand."""
    return make_worker()


@pytest.fixture
def bench(own: OwnConnection) -> Bench:
    """Run jobs one by one in this thread."""
    return Bench(own)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Where `tests.worker.tasks.wait_at_gate` waits; open at the end of the test."""
    made = tasks.gates["gate"] = Gate("gate")
    yield made
    made.open()


@pytest.fixture
def start_thread(transactional_db: None, gate: Gate) -> Iterator[Callable[..., ThreadedWorker]]:
    """Start workers in threads: `start_thread(**options)`; see `support.make_options`."""
    workers: list[ThreadedWorker] = []

    def start(**options: Any) -> ThreadedWorker:
        worker = ThreadedWorker(**options)
        workers.append(worker)
        worker.start()
        return worker

    yield start
    gate.open()
    for worker in workers:
        worker.close()


@pytest.fixture
def drain(start_thread: Callable[..., ThreadedWorker]) -> Callable[..., ThreadedWorker]:
    """Run a worker until nothing is left to run: `drain(**options)`."""

    def run(**options: Any) -> ThreadedWorker:
        worker = start_thread(drain=True, **options)
        assert worker.join() == 0
        return worker

    return run


@pytest.fixture
def make() -> Iterator[Make]:
    """Make a `Claiming(**options)`."""
    made: list[Claiming] = []

    def make_one(**options: Any) -> Claiming:
        made.append(Claiming(**options))
        return made[-1]

    yield make_one
    for claiming in made:
        claiming.async_slots.stop()


@pytest.fixture
def proxied(proxy: TcpProxy) -> Iterator[str]:
    """The alias of the test database behind `proxy`, for what the worker does itself."""
    settings = connections.settings["default"]
    connections.settings["proxied"] = settings | {
        "HOST": "127.0.0.1",
        "PORT": proxy.port,
        "OPTIONS": settings["OPTIONS"] | {"sslmode": "disable", "gssencmode": "disable"},
    }
    yield "proxied"
    del connections.settings["proxied"]


@pytest.fixture
def start_proxied(proxied: str, start_thread: StartThread) -> StartThread:
    """Start workers whose own connections go through the proxy."""
    return partial(start_thread, database=proxied)


@pytest.fixture
def keep(own: OwnConnection) -> Iterator[Keep]:
    """Start a lease keeper: `keep(connection=own, **options)`."""
    started: list[Kept] = []

    def start(connection: Any = own, **options: Any) -> Kept:
        kept = Kept(connection, **options)
        started.append(kept)
        kept.keeper.start()
        return kept

    yield start
    for kept in started:
        kept.keeper.stop()
        assert kept.keeper.join(15)
        assert not kept.crashed


@pytest.fixture
def refuse(transactional_db: None) -> Iterator[Callable[..., None]]:
    """Let the server refuse rows of jobs until the end of the test: `refuse(condition)`."""
    yield refuse_rows
    allow()
