"""Waiting for what can be observed, addresses of databases, and real worker processes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import psutil
import psycopg
import pytest
from django.db import connections

ROOT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "") not in ("", "0", "false")
# One poll costs a query at most; a condition that came true is seen at once.
POLL_SECONDS = 0.01
# What one phase of a test may take, and what it waits for something to happen. Nothing is slower
# because of them where all goes well; on a busy machine everything takes ten times as long.
TEST_SECONDS = float(os.environ.get("PGJOBS_TEST_SECONDS", "240"))
WAIT_SECONDS = TEST_SECONDS / 4
MARK = "PGJOBS_TEST_WORKER"
# What `runjobs` says when it takes jobs: "Ready. Ctrl-C to stop" or "ready worker=...".
READY = re.compile(r"\bready(\.|\s+worker=)", re.IGNORECASE)

T = TypeVar("T")


def some_always(cases: Iterable[Any], *, every: int = 5) -> list[Any]:
    """Return cases of a test, of which only each so-and-so-many-th runs always.

    The others are slow in sum, and run in .ci/run.
    """

    def slow(case: Any) -> Any:
        values = case if type(case) is tuple else (case,)
        return pytest.param(*values, marks=pytest.mark.slow)

    return [case if number % every == 0 else slow(case) for number, case in enumerate(cases)]


def in_a_loop(name: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Run a test with each of many cases: it is quicker than to collect them as tests.

    What it takes from fixtures it takes once. Of those that fail all are told.
    """

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def run_all(**fixtures: Any) -> None:
            failures = []
            for case in cases:
                try:
                    test(**{name: case}, **fixtures)
                except Exception as error:
                    error.add_note(f"{name}: {case}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} cases", failures)

        signature = inspect.signature(test)
        others = [each for each in signature.parameters.values() if each.name != name]
        run_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run_all

    return decorate


def skip(reason: str) -> None:
    """Skip the test because this machine lacks something; in CI nothing may be lacking."""
    if IN_CI:
        pytest.fail(f"may not be skipped in CI: {reason}")
    pytest.skip(reason)


def wait_until(
    condition: Callable[[], T],
    *,
    timeout: float = WAIT_SECONDS,
    message: str | Callable[[], object] = "",
    interval: float = POLL_SECONDS,
) -> T:
    """Call *condition* until it returns something true, and return that.

    Raise AssertionError after *timeout* seconds, with *message*, which may be a callable that
    says how things stand. *interval* is the pause between the first looks, in seconds; they become
    longer, because others need the processor that looks take.
    """
    deadline = time.monotonic() + timeout
    pause = interval
    while not (value := condition()):
        if time.monotonic() > deadline:
            said = message() if callable(message) else message
            name = getattr(condition, "__name__", repr(condition))
            raise AssertionError(f"not within {timeout} s: {name} is {value!r}. {said}")
        time.sleep(pause)
        pause = min(1.2 * pause, 5 * interval)
    return value


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Fail the test, from the main thread, if the block takes longer than *seconds*."""

    def give_up(*_: object) -> None:
        pytest.fail(f"took longer than {seconds:g} seconds")

    handler = signal.signal(signal.SIGALRM, give_up)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, handler)


def settings_of(alias: str = "default") -> dict[str, Any]:
    """Return the settings with which Django connects to *alias* now (the test database)."""
    return dict(connections.settings[alias])


def database_url(settings: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """Return the URL of a database from Django's *settings* for it; default: the test database.

    *changes* replace single settings: `database_url(HOST="127.0.0.1", PORT=6432)`.
    """
    wanted = {**(settings_of() if settings is None else settings), **changes}
    query = {key: str(value) for key, value in (wanted.get("OPTIONS") or {}).items()}
    host = str(wanted.get("HOST") or "")
    if host.startswith("/"):
        query, host = {"host": host, **query}, ""
    user = quote(str(wanted.get("USER") or ""), safe="")
    if wanted.get("PASSWORD"):
        user += ":" + quote(str(wanted["PASSWORD"]), safe="")
    place = f"[{host}]" if ":" in host else host
    if wanted.get("PORT"):
        if host:
            place += f":{wanted['PORT']}"
        else:
            query["port"] = str(wanted["PORT"])
    name = quote(str(wanted["NAME"]), safe="")
    return f"postgresql://{user}@{place}/{name}" + (f"?{urlencode(query)}" if query else "")


def execute(query: Any, *params: Any) -> list[Any]:
    """Run a statement of the test's own through Django; return its rows."""
    with connections["default"].cursor() as cursor:
        cursor.execute(query, params or None)
        return cursor.fetchall() if cursor.description else []


def connect(
    url: str | None = None, *, autocommit: bool = True, **options: Any
) -> psycopg.Connection:
    """Return a psycopg connection to *url*, default: the test database."""
    return psycopg.connect(url or database_url(), autocommit=autocommit, **options)


def backend_pid(connection: psycopg.Connection) -> int:
    """Return the process id of the server process behind *connection*."""
    return connection.info.backend_pid


def end_session(pid: int) -> None:
    """Let the server end a session, and wait until it has."""
    with connect() as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


def sleep_by(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], object]) -> None:
    """Let `time.sleep` of this thread call *sleep*; other threads sleep as ever."""
    thread, really_sleep = threading.get_ident(), time.sleep

    def in_this_thread(seconds: float) -> None:
        (sleep if threading.get_ident() == thread else really_sleep)(seconds)

    monkeypatch.setattr(time, "sleep", in_this_thread)


def wait_until_blocked(connection: psycopg.Connection, *, timeout: float = WAIT_SECONDS) -> None:
    """Wait until the statement that *connection* is running waits for somebody's lock."""
    pid = backend_pid(connection)
    with connect() as observer:
        wait_until(
            lambda: (
                observer.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()
                == (True,)
            ),
            timeout=timeout,
            message=f"backend {pid} waits for no lock",
        )


def end_other_backends(*, timeout: float = WAIT_SECONDS) -> None:
    """End every other session in the test database, and wait until they are gone."""
    mine = connections["default"].connection
    keep = [mine.info.backend_pid] if mine and not mine.closed else []
    with connect() as observer:
        wait_until(
            lambda: (
                observer.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    " AND backend_type = 'client backend' AND pid <> ALL(%s)",
                    [keep],
                ).rowcount
                == 0
            ),
            timeout=timeout,
            message="sessions of the test's processes do not end",
        )


def living_processes(mark: str) -> list[psutil.Process]:
    """Return the processes that have *mark* as MARK in their environment, orphans too."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def kill_processes(mark: str) -> None:
    """Kill the processes with *mark*, paused or not, and wait until they are gone."""
    while members := living_processes(mark):  # one of them may just have started another
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(members, timeout=0.05)


class WorkerProcess:
    """A real `runjobs` with all its children; see the fixture `start_worker`.

    The children of a supervisor have sessions of their own and may outlive it: they are found
    by a variable in their environment.
    """

    def __init__(
        self,
        *flags: str,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        database: str | None = None,
    ) -> None:
        self.flags = flags
        self._mark = uuid.uuid4().hex
        log, name = tempfile.mkstemp(prefix="pgjobs-worker-")
        self._log = Path(name)
        environment = os.environ | {
            "DATABASE_URL": database or database_url(),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PGJOBS_TEST_SETTINGS": json.dumps(settings or {}),
            "PYTHONPATH": str(ROOT),
            MARK: self._mark,
            "PYTHONUNBUFFERED": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "django", "runjobs", "--no-reload", *flags],
            cwd=ROOT,
            env=environment | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(log)

    @property
    def pid(self) -> int:
        """The process id of the worker, or of the supervisor if there are --processes."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet (a stopped one has not)."""
        return self.process.poll() is None

    def output(self) -> str:
        """Return everything the worker has written so far, stdout and stderr together."""
        return self._log.read_text(errors="replace")

    def wait_for_output(self, text: str, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the worker has written *text*; fail at once if it ends without."""

        def written_or_ended() -> bool:
            ended = not self.is_running  # looked at first: the last words come before the end
            output = self.output()
            assert text in output or not ended, (
                f"the worker ended with {self.process.returncode} without {text!r}:\n{output}"
            )
            return text in output

        wait_until(written_or_ended, timeout=timeout, message=self.output)

    def wait_until_ready(self, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the worker says that it is ready, or has ended."""
        wait_until(
            lambda: not self.is_running or READY.search(self.output()),
            timeout=timeout,
            message=self.output,
        )

    def send(self, number: int) -> None:
        """Send a signal to the worker's first process only, as `kill` and systemd do."""
        assert self.is_running, f"the worker has ended:\n{self.output()}"
        self.process.send_signal(number)

    def processes(self) -> list[psutil.Process]:
        """Return the worker's living processes: itself and its children, orphans too."""
        return living_processes(self._mark)

    def pause(self) -> None:
        """Stop all processes of the worker, as a frozen machine would."""
        assert self.is_running, f"the worker has ended:\n{self.output()}"
        for process in self.processes():
            process.suspend()

    def resume(self) -> None:
        """Let a paused worker go on."""
        for process in self.processes():
            process.resume()

    def wait(self, *, timeout: float = 2 * WAIT_SECONDS) -> int:
        """Wait for the end of the worker and return its exit code (-9: killed by SIGKILL)."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the worker did not end within {timeout} s:\n{self.output()}"
            ) from None

    def stop(self, number: int = signal.SIGTERM, *, timeout: float = 2 * WAIT_SECONDS) -> int:
        """Send a signal, wait for the end of the worker and return its exit code."""
        self.send(number)
        return self.wait(timeout=timeout)

    def kill(self) -> None:
        """Kill all processes of the worker, paused or not, and wait until they are gone."""
        kill_processes(self._mark)
        self.process.wait()

    def close(self) -> None:
        """Kill what is left and remove the log."""
        self.kill()
        self._log.unlink(missing_ok=True)
