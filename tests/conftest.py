"""The fixtures: the test database, real workers, and servers that may be broken.

All of them keep their promise at the end of a test, whatever happened in it: no process of
the test is left, no session holds a lock, the tables are empty.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.test import Client, TransactionTestCase

from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.control import rate_limits
from django_pgjobs.declaring.missing_limits import named_limits
from django_pgjobs.models.control import RateLimit
from tests import helpers, people, variants
from tests.helpers import WorkerProcess, wait_until
from tests.management.commands.flush import renew_sessions
from tests.progress import install_progress
from tests.proxy import TcpProxy
from tests.servers import PgBouncer, PrivateCluster, drop_stale_test_databases, temporary_cluster

# After so many new objects garbage is looked for; Python's own number is 700.
GARBAGE = 20_000
# Of pytest, that share a server.
MANY_WORKERS = 8
# Threads of a worker that change rows; a worker that ended in a test may still have one.
THREADS_WITH_ROWS = frozenset(
    f"pgjobs-{name}"
    for name in ("lease", "pump", "upkeep", "pruner", "recorder", "scheduler", "exit")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know `--variants` and `--tests`."""
    variants.add_option(parser)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Look for no garbage while tests are collected: they stay, and it took half of the time.

    While they run, look for it more rarely than Python does: that took an eighth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[pytest.CollectReport]:
    """Let each process begin with other files: what one has compiled the others read."""
    report = yield
    if isinstance(collector, pytest.Directory) and report.result:
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        first = len(report.result) * number // processes
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Run the part that is asked for, and what takes longest first.

    At the end one process would be busy with it, and the others would have nothing to do.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:  # all processes are to have the same order
        items.sort(key=lambda item: str(item.path))
    yield
    variants.keep_part(config, items)
    items.sort(key=seconds_for, reverse=True)


def pytest_configure(config: pytest.Config) -> None:
    """Be quiet, and show how far the run is."""
    install_progress(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto`: two for a processor, because half of the time a test waits for the server.

    Where there are many processors the server is what has enough to do.
    """
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # xdist reads it
    return max(processors(), min(2 * processors(), MANY_WORKERS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process tests that follow each other: they share what their module makes."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """Before the test database is created: remove those of runs that were killed."""
    if "TEST" in helpers.settings_of() and helpers.settings_of()["TEST"].get("NAME"):
        drop_stale_test_databases()


@pytest.fixture(scope="session", autouse=True)
def sessions_are_renewed() -> Iterator[None]:
    """Spare the server a new session for each test that commits."""

    def renew(_: TransactionTestCase) -> bool:
        renew_sessions()
        return False

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(TransactionTestCase, "_should_reload_connections", renew)
        yield


@pytest.fixture
def admin_user(db: None) -> User:
    """Somebody who may do everything, as pytest-django makes one, by one statement."""
    return people.make_admin()


@pytest.fixture
def admin_client(admin_user: User) -> Client:
    """The browser of that person, who has logged in."""
    return people.open_client(admin_user)


@pytest.fixture
def open_connection(transactional_db: None) -> Iterator[Callable[..., psycopg.Connection]]:
    """Open psycopg connections of your own: `open_connection(url=None, *, autocommit=True)`.

    Default is the test database; what rows the test sees must be committed.
    """
    with contextlib.ExitStack() as stack:

        def opener(url: str | None = None, **options: Any) -> psycopg.Connection:
            connection = helpers.connect(url, **options)
            stack.callback(connection.close)
            return connection

        yield opener


@pytest.fixture(autouse=True)
def no_schedules_of_others() -> None:
    """Forget what a module that was imported declares: workers of this process would enqueue it."""
    from django_pgjobs.declaring import schedules

    schedules._declared.clear()


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """A thread that a test has left would claim, rescue or delete the rows of the next."""
    yield

    def running() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name in THREADS_WITH_ROWS]

    wait_until(lambda: not running(), message=lambda: f"left behind: {running()}")
    # Nor is a web process, as which a test has answered, to write what it counted.
    if (station := sys.modules.get("django_pgjobs.http.station")) is not None:
        station.station.tally.take(is_last=True)


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """`runjobs` in the process of a test lets loggers write to the stderr of that test."""
    loggers = [logging.getLogger(name) for name in ("django_pgjobs", "psycopg", TASKS_PACKAGE)]
    before = [(each, list(each.handlers), each.level, each.propagate) for each in loggers]
    yield
    for logger, handlers, level, propagates in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagates


@pytest.fixture
def kept_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `acquire` keep its connection from one use to the next, as outside of tests."""
    monkeypatch.setattr(rate_limits, "is_testing", lambda: False)
    yield
    rate_limits.close_sessions()


@pytest.fixture
def start_worker(transactional_db: None) -> Iterator[Callable[..., WorkerProcess]]:
    """Start real workers: `start_worker(*flags, settings=None, env=None, database=None)`.

    It runs `python -m django runjobs --no-reload *flags` on the test database (*database*:
    another URL, of a proxy or of PgBouncer) and returns when the worker is ready or has ended,
    at once with `wait=False`. *settings* change tests.settings in the worker (dicts are
    merged), *env* its environment. What still runs at the end of the test is killed.
    """
    workers: list[WorkerProcess] = []

    def start(
        *flags: str,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        database: str | None = None,
        wait: bool = True,
    ) -> WorkerProcess:
        worker = WorkerProcess(*flags, settings=settings, env=env, database=database)
        workers.append(worker)
        if wait:
            worker.wait_until_ready()
        return worker

    yield start
    for worker in workers:
        worker.close()
    if workers:
        helpers.end_other_backends()


@pytest.fixture
def limits_of_all_tasks(transactional_db: None) -> None:
    """A worker and its check warn of those that are missing, and tasks of tests name some."""
    for name, cost in named_limits().items():
        RateLimit.objects.create(name=name, count=cost, period=1)


@pytest.fixture
def start_proxy() -> Iterator[Callable[..., TcpProxy]]:
    """Put TCP proxies in front of a database: `start_proxy(settings=None)`, Django's settings."""
    proxies: list[TcpProxy] = []

    def start(settings: dict[str, Any] | None = None) -> TcpProxy:
        proxies.append(TcpProxy(settings))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def proxy(transactional_db: None, start_proxy: Callable[..., TcpProxy]) -> TcpProxy:
    """A TCP proxy in front of the test database; workers reach it by `proxy.url`."""
    return start_proxy()


@pytest.fixture
def pgbouncer(transactional_db: None) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode in front of the test database, at `pgbouncer.url`."""
    with TemporaryDirectory(prefix="pgjobs-") as home:
        Path(home).chmod(0o755)
        bouncer = PgBouncer(Path(home))
        bouncer.start()
        yield bouncer
        bouncer.stop()


@pytest.fixture(scope="session")
def _private_cluster() -> Iterator[PrivateCluster]:
    with temporary_cluster() as cluster:
        yield cluster


@pytest.fixture
def private_cluster(_private_cluster: PrivateCluster) -> PrivateCluster:
    """A PostgreSQL cluster that the test may stop, kill and start; it runs at the beginning."""
    _private_cluster.ensure_started()
    return _private_cluster


@pytest.fixture
def private_database(
    transactional_db: None, private_cluster: PrivateCluster
) -> Iterator[PrivateCluster]:
    """Django's default database lies in `private_cluster`, migrated and empty, for this test.

    `start_worker`, `start_proxy` and `helpers.database_url` follow it when they are called.
    """
    wanted = private_cluster.create_database("pgjobs")
    settings = connections.settings["default"]
    before = dict(settings)
    connections["default"].close()
    settings.update(wanted)
    try:
        if not private_cluster.is_migrated:
            call_command("migrate", run_syncdb=True, verbosity=0, interactive=False)
            private_cluster.is_migrated = True
        call_command("flush", verbosity=0, interactive=False)
        yield private_cluster
    finally:
        connections["default"].close()
        settings.clear()
        settings.update(before)


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def seconds_for(item: pytest.Item) -> float:
    """Return what each phase of a test may take."""
    marker = item.get_closest_marker("time_limit")
    return float(marker.args[0]) if marker else helpers.TEST_SECONDS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with helpers.time_limit(seconds_for(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with helpers.time_limit(seconds_for(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with helpers.time_limit(seconds_for(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Let reports travel between processes: tests log texts that UTF-8 cannot say."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run `manage.py jobs` with words of a command line; return what it prints."""

    def run_one(*words: object) -> str:
        call_command("jobs", *map(str, words))
        return capsys.readouterr().out

    return run_one
