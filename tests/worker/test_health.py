"""What a worker answers over HTTP, and the file that it touches."""

from __future__ import annotations

import errno
import os
import signal
import socket
import socketserver
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psycopg
import pytest

from django_pgjobs.queries import workers
from django_pgjobs.worker.process import health, health_server
from django_pgjobs.worker.process.health import HealthUnusable
from django_pgjobs.worker.process.health_server import MAX_CALLERS, HealthServer
from tests.helpers import wait_until
from tests.metrics.parsing import read, value_of
from tests.tasks import add_async
from tests.worker.health_support import ask
from tests.worker.support import Gate, StartThread, ThreadedWorker
from tests.worker.tasks import block_the_loop, wait_at_gate

pytestmark = pytest.mark.django_db(transaction=True)


def port_of(worker: ThreadedWorker) -> int:
    """Return where a worker listens that was given the port 0."""
    [server] = [role for role in worker.runner.health if isinstance(role, HealthServer)]
    return server.port


@pytest.fixture
def served(start_thread: StartThread, tmp_path: Path) -> ThreadedWorker:
    """A worker that says how it does, over HTTP and by a file."""
    return start_thread(health_port=0, health_file=str(tmp_path / "alive"))


def test_a_worker_that_does_well_is_live_and_ready(served: ThreadedWorker) -> None:
    for path, word in (("/live", "live"), ("/ready", "ready"), ("/live?a=b", "live")):
        answer = ask(port_of(served), path)
        assert (answer.status, answer.text) == (200, f"{word}\n")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Server"] == "pgjobs"
    head = ask(port_of(served), "/live", method="HEAD")
    assert (head.status, head.text, head.headers["Content-Length"]) == (200, "", "5")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/livelier", 404), ("POST", "/live", 501), ("GET", "/%2e", 404)],
)
def test_there_is_nothing_else(served: ThreadedWorker, method: str, path: str, status: int) -> None:
    assert ask(port_of(served), path, method=method).status == status


def test_nobody_is_asked_for_it(start_thread: StartThread) -> None:
    assert start_thread().runner.health == []


def test_metrics_tell_of_slots(
    served: ThreadedWorker, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "FRESH_SECONDS", 0.0)
    wait_at_gate.enqueue("gate")
    gate.wait_entered()
    answer = ask(port_of(served), "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    metrics = read(answer.text.encode())
    assert value_of(metrics, "pgjobs_worker_slots", kind="threads") == 2
    assert value_of(metrics, "pgjobs_worker_slots_busy", kind="threads") == 1
    assert value_of(metrics, "pgjobs_worker_live") == 1
    assert value_of(metrics, "pgjobs_worker_ready") == 1
    assert value_of(metrics, "pgjobs_db_connections_opened_total", role="pump") == 1
    heartbeat = value_of(metrics, "pgjobs_worker_last_heartbeat_timestamp_seconds")
    assert heartbeat is not None and 0 <= time.time() - heartbeat < 60


def test_the_heartbeat_is_that_of_the_lease(served: ThreadedWorker) -> None:
    [beat, _server] = served.runner.health
    assert isinstance(beat, health.Health)
    renewed_at = time.monotonic() - 1_000
    beat._leases = SimpleNamespace(renewed_at=renewed_at, is_failing=False)  # type: ignore[assignment]
    metrics = read(beat.describe())
    heartbeat = value_of(metrics, "pgjobs_worker_last_heartbeat_timestamp_seconds")
    assert heartbeat == pytest.approx(time.time() - 1_000, abs=30)


def test_many_callers_cost_one_description_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = mock.Mock()
    beat.describe.side_effect = [b"first", b"second"]
    server = HealthServer("127.0.0.1", 0, beat, lambda role: None)
    try:
        now = time.monotonic()
        with mock.patch.object(time, "monotonic", return_value=now):
            assert [server._fresh_metrics() for _ in range(2)] == [b"first", b"first"]
        with mock.patch.object(time, "monotonic", return_value=now + 1.1):
            assert server._fresh_metrics() == b"second"
    finally:
        server._server.server_close()


@pytest.mark.parametrize(("number", "rests"), [(errno.EMFILE, True), (errno.ECONNABORTED, False)])
def test_without_a_free_descriptor_it_rests(number: int, rests: bool) -> None:
    server = HealthServer("127.0.0.1", 0, mock.Mock(), lambda role: None)
    try:
        with (
            mock.patch.object(
                socketserver.TCPServer, "get_request", side_effect=OSError(number, "refused")
            ),
            mock.patch.object(time, "sleep") as sleep,
            pytest.raises(OSError, match="refused"),
        ):
            server._server.get_request()
    finally:
        server._server.server_close()
    assert sleep.called is rests


@pytest.mark.slow
def test_a_part_that_stands_still_is_named(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LIVE_SECONDS", 1.5)
    monkeypatch.setitem(served.runner.vitals._parts, "the pump", lambda: 1.0)
    wait_until(lambda: ask(port_of(served), "/live").status == 503)
    assert ask(port_of(served), "/live").text == "not live: the pump stands still\n"
    # It could still take jobs, as far as it knows.
    assert ask(port_of(served), "/ready").status == 200


@pytest.mark.slow
def test_a_look_that_does_not_come_is_noticed(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = threading.Event()
    monkeypatch.setattr(served.runner.vitals, "_end_if_late", lambda: looking.wait(60))
    monkeypatch.setattr(health, "LIVE_SECONDS", 1.5)
    wait_until(lambda: "the look at it stands still" in ask(port_of(served), "/live").text)
    looking.set()
    wait_until(lambda: ask(port_of(served), "/live").status == 200)


@pytest.mark.slow
def test_jobs_that_nobody_claims_though_all_seems_well_are_noticed(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker that lives and does not work."""
    monkeypatch.setattr(health, "LIVE_SECONDS", 1.5)
    monkeypatch.setattr(type(served.runner.pump.outlook), "is_idle", True)
    assert ask(port_of(served), "/live").status == 200
    monkeypatch.setattr(type(served.runner.pump.outlook), "is_idle", False)
    wait_until(lambda: ask(port_of(served), "/live").status == 503)
    assert "which knows of jobs and claims none" in ask(port_of(served), "/live").text
    wait_until(lambda: is_untouched(tmp_path / "alive"))
    monkeypatch.undo()
    wait_until(lambda: ask(port_of(served), "/live").status == 200)


@pytest.mark.slow
def test_a_worker_whose_loop_a_job_blocks_is_not_live(
    served: ThreadedWorker, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other async jobs would wait, and nobody would know."""
    monkeypatch.setattr(health, "LIVE_SECONDS", 1.5)
    block_the_loop.enqueue()
    gate.wait_entered()
    assert ask(port_of(served), "/live").status == 200
    add_async.enqueue(1, 2)
    wait_until(lambda: ask(port_of(served), "/live").status == 503)
    text = ask(port_of(served), "/live").text
    assert text == "not live: the event loop, which a job blocks, stands still\n"
    gate.open()
    wait_until(lambda: ask(port_of(served), "/live").status == 200)


def is_untouched(path: Path) -> bool:
    """Is the file left alone for longer than a look takes?"""
    return time.time() - path.stat().st_mtime > 1.5


def test_a_worker_that_is_to_claim_nothing_is_live(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    [beat, _server] = served.runner.health
    assert isinstance(beat, health.Health)
    outlook = type(served.runner.pump.outlook)
    monkeypatch.setattr(outlook, "is_idle", False)
    monkeypatch.setattr(outlook, "has_room", True)
    assert beat._mark_of_claims() == served.runner.pump.outlook.claimed_at
    served.runner.state.quiet = True
    assert beat._mark_of_claims() == health.WAITS
    assert beat.find_unready() == "it was asked to claim nothing"
    served.runner.state.quiet = False
    # Those that it knows of may be of a queue that has its share of the slots, say.
    with mock.patch.dict(served.runner.state.held, {1: SimpleNamespace()}):
        assert beat._mark_of_claims() == health.WAITS


def test_what_a_task_forks_lets_go_of_the_port() -> None:
    """It may outlive the worker, and the next one could not have the port."""
    server = HealthServer("127.0.0.1", 0, SimpleNamespace(), lambda role: None)  # type: ignore[arg-type]
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, b"closed" if server._server.fileno() == -1 else b"open")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"closed"
    assert server._server.fileno() != -1
    server._server.server_close()
    for end in (reader, writer):
        os.close(end)


def test_a_worker_that_stops_is_live_and_not_ready(served: ThreadedWorker, gate: Gate) -> None:
    wait_at_gate.enqueue("gate")
    gate.wait_entered()
    served.runner.ask_to_stop("the test says so")
    wait_until(lambda: ask(port_of(served), "/ready").status == 503)
    assert ask(port_of(served), "/ready").text == "not ready: it takes no jobs any more\n"
    assert ask(port_of(served), "/live").status == 200


@pytest.mark.slow
def test_a_worker_without_a_database_is_live_and_not_ready(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise psycopg.OperationalError("no route to host")

    with monkeypatch.context() as broken:
        broken.setattr(workers, "renew_lease", refuse)
        served.runner.leases.wake()
        wait_until(lambda: ask(port_of(served), "/ready").status == 503)
        # What the server said is in the log: here anybody may read.
        answer = ask(port_of(served), "/ready").text
        assert answer == "not ready: the database cannot be reached\n"
        assert ask(port_of(served), "/live").status == 200
    wait_until(lambda: ask(port_of(served), "/ready").status == 200)


def test_a_worker_whose_lease_may_be_over_is_not_ready(served: ThreadedWorker) -> None:
    [beat, _server] = served.runner.health
    assert isinstance(beat, health.Health)
    beat._state = SimpleNamespace(  # type: ignore[assignment]
        stopping=False, quiet=False, worker_id=1, danger_at=time.monotonic() - 1
    )
    assert "lease may be over" in beat.find_unready()
    beat._state.worker_id = 0
    assert beat.find_unready() == "it is not registered yet"


def test_a_port_that_is_taken_is_refused_at_the_start(start_thread: StartThread) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HealthUnusable, match=f"nothing can listen at 127.0.0.1:{port}: "):
            HealthServer("127.0.0.1", port, SimpleNamespace(), lambda role: None)  # type: ignore[arg-type]


def test_what_cannot_be_answered_is_logged_and_stops_nothing(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "describe_worker", lambda *given: 1 / 0)
    assert ask(port_of(served), "/metrics").status == 500
    assert "ZeroDivisionError" in caplog.text
    assert ask(port_of(served), "/live").status == 200


# Callers that are slow, or mean no good


def call(worker: ThreadedWorker, data: bytes = b"") -> socket.socket:
    """Return a connection to the worker, with some bytes sent."""
    caller = socket.create_connection(("127.0.0.1", port_of(worker)), timeout=30)
    caller.sendall(data)
    return caller


def read_all(caller: socket.socket) -> bytes:
    """Return what comes until the other end hangs up."""
    said = b""
    try:
        while piece := caller.recv(65536):
            said += piece
    except ConnectionError:
        pass
    return said


def test_a_caller_that_says_nothing_is_hung_up_on(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "REQUEST_SECONDS", 0.2)
    with call(served, b"GET /live HT") as caller:
        assert read_all(caller) == b""


def test_a_caller_that_sends_without_an_end_is_hung_up_on(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "REQUEST_SECONDS", 3600.0)
    with call(served) as caller:
        with suppress(ConnectionError):
            for _ in range(1_000):
                caller.sendall(b"GET / HTTP/1.1 " * 100)
        assert read_all(caller) == b""


@pytest.mark.parametrize(
    "data", [b"\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET /live\r\n\r\n",
             b"GET /live HTTP/9.9\r\n\r\n", b"A: " + b"b\r\n" * 300 + b"\r\n"]
)  # fmt: skip
def test_what_is_no_http_hurts_nobody(served: ThreadedWorker, data: bytes) -> None:
    with call(served, data) as caller:
        read_all(caller)
    assert ask(port_of(served), "/live").status == 200


def test_a_caller_that_is_gone_before_the_answer_hurts_nobody(
    served: ThreadedWorker, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        call(served, b"GET /metrics HTTP/1.0\r\n\r\n").close()
    assert ask(port_of(served), "/live").status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_many_silent_callers_keep_no_probe_from_its_answer(
    served: ThreadedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "REQUEST_SECONDS", 60.0)
    callers = [call(served) for _ in range(2 * MAX_CALLERS)]
    for _ in range(5):
        assert ask(port_of(served), "/live").status == 200
    # The first ones are hung up on, the last ones not yet.
    assert read_all(callers[0]) == b""
    threads = [each for each in threading.enumerate() if "process_request" in each.name]
    assert len(threads) <= 2 * MAX_CALLERS
    for caller in callers:
        caller.close()


def test_requests_are_not_logged(
    served: ThreadedWorker, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    ask(port_of(served), "/live?token=secret")
    ask(port_of(served), "/nowhere?token=secret", method="PUT")
    assert "secret" not in caplog.text + "".join(capfd.readouterr())


# The file


@pytest.mark.slow
def test_the_file_is_touched_while_the_worker_lives(served: ThreadedWorker, tmp_path: Path) -> None:
    path = tmp_path / "alive"
    assert path.read_text() == f"{os.getpid()}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    os.utime(path, (0, 0))
    wait_until(lambda: path.stat().st_mtime > 0)
    path.unlink()
    wait_until(path.exists)
    assert os.listdir(tmp_path) == ["alive"]
    served.close()
    assert os.listdir(tmp_path) == []
