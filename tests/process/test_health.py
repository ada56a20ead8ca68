"""What others see of a real worker: its address, its file, and what systemd hears."""

from __future__ import annotations

import contextlib
import http.client
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import tasks as common
from tests.helpers import WAIT_SECONDS, WorkerProcess, wait_until
from tests.metrics.parsing import read, value_of
from tests.process import tasks
from tests.process.support import Journal, children_of, wait_for_status
from tests.servers import free_port
from tests.worker.health_support import Answer, ask

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

TOLD = ("tests.process.told",)


def asked(port: int, path: str) -> Answer:
    """Return the answer as soon as somebody listens."""

    def answer_if_any() -> Answer | None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return ask(port, path)
        return None

    return wait_until(answer_if_any)


def test_a_worker_counts_what_it_ran(start: Start) -> None:
    port = free_port()
    worker = start("-c", "2", "--health-port", str(port))
    assert f"health  http://127.0.0.1:{port}/\n" in worker.output()
    assert asked(port, "/live")[:2] == (200, "live\n")
    assert asked(port, "/ready").status == 200
    for job, status in (
        (common.add.enqueue(1, 2), "successful"),
        (common.add.using(queue_name="other").enqueue(1, 2), "successful"),
        (common.fail.enqueue(), "failed"),
    ):
        wait_for_status(job, status, worker=worker)
    path = common.add.module_path
    done = {"queue": "default", "task": path, "outcome": "successful"}

    def counted() -> float | None:
        metrics = read(asked(port, "/metrics").text.encode())
        failed = {**done, "task": common.fail.module_path, "outcome": "failed"}
        both = value_of(metrics, "pgjobs_attempts_total", **done)
        return both and value_of(metrics, "pgjobs_attempts_total", **failed) and both

    assert wait_until(counted) == 1
    metrics = read(asked(port, "/metrics").text.encode())
    count = "pgjobs_attempt_duration_seconds_count"
    assert value_of(metrics, count, queue="other", task=path) == 1
    assert worker.stop() == 0


def test_a_worker_that_lives_and_does_not_work_is_not_live(
    start: Start, journal: Journal, tmp_path: Path
) -> None:
    """Its lease is renewed, its address answers, and no job runs."""
    port = free_port()
    path = tmp_path / "alive"
    worker = start(
        "-c", "2", "--health-port", str(port), "--health-file", str(path), modules=TOLD
    )  # fmt: skip
    tasks.stop_pump.enqueue(journal.folder)
    journal.wait_for("stopped")
    common.add.enqueue(1, 2)
    wait_until(lambda: asked(port, "/live").status == 503, message=worker.output)
    assert asked(port, "/live").text == "not live: the pump stands still\n"
    assert asked(port, "/ready").status == 200
    assert b"pgjobs_worker_live 0\n" in asked(port, "/metrics").text.encode()
    wait_until(lambda: time.time() - path.stat().st_mtime > 2)


def test_a_worker_that_is_frozen_gives_no_answer_and_touches_nothing(
    start: Start, tmp_path: Path
) -> None:
    port = free_port()
    path = tmp_path / "alive"
    worker = start("--health-port", str(port), "--health-file", str(path))
    asked(port, "/live")
    worker.pause()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=0.5)
    connection.request("GET", "/live")
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()
    wait_until(lambda: time.time() - path.stat().st_mtime > 2)
    worker.resume()
    assert asked(port, "/live").status == 200
    assert worker.stop() == 0
    assert not path.exists()


def test_a_port_in_use_ends_with_2_and_says_so(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = start("--health-port", str(port), wait=False)
        assert worker.wait() == 2
        assert f"--health-port: nothing can listen at 127.0.0.1:{port}: " in worker.output()
        assert "Traceback" not in worker.output()
        # Of a child whose neighbour works: it is tried again.
        worker = start("--health-port", str(port), "--processes", "2", wait=False)
        worker.wait_for_output("child 1 ended with status 2")
        assert asked(port + 1, "/ready").status == 200


def test_a_file_that_cannot_be_written_ends_with_2(start: Start, tmp_path: Path) -> None:
    worker = start("--health-file", str(tmp_path / "nowhere" / "alive"), wait=False)
    assert worker.wait() == 2
    assert "the file of --health-file cannot be written" in worker.output()


def free_ports(count: int) -> int:
    """Return the first of so many free ports in a row."""

    def find() -> int | None:
        first = free_port()
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
        return None

    return wait_until(find)


def test_each_child_has_a_port_and_a_file_of_its_own(start: Start, tmp_path: Path) -> None:
    port = free_ports(2)
    path = tmp_path / "alive"
    flags = ("--processes", "2", "--health-port", str(port), "--health-file", str(path))
    worker = start(*flags, "--name", "web", wait=False)
    for number in (1, 2):
        metrics = read(asked(port + number - 1, "/metrics").text.encode())
        [info] = metrics["pgjobs_worker_info"].samples
        assert info.labels["worker"] == f"web-{number}"
        assert (tmp_path / f"alive.{number}").exists()
    # One that is replaced gets them again.
    [child, _other] = sorted(children_of(worker), key=lambda each: each.pid)
    wait_until(lambda: worker.output().count(" ready ") == 2, message=worker.output)
    child.kill()
    wait_until(lambda: worker.output().count(" ready ") == 3, message=worker.output)
    assert {asked(port + place, "/ready").status for place in (0, 1)} == {200}
    assert worker.stop() == 0


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """The end of systemd."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            listening.bind(f"{folder}/notify")
            listening.settimeout(WAIT_SECONDS)
            yield listening


@pytest.mark.parametrize("flags", [(), ("--processes", "2")], ids=["worker", "supervisor"])
def test_systemd_hears_of_start_life_and_end(
    start: Start, manager: socket.socket, flags: tuple[str, ...]
) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "10000000"}
    worker = start(*flags, env=environment, wait=False)
    heard = [manager.recv(100)]
    while heard[-1] != b"READY=1":
        assert heard[-1] == b"WATCHDOG=1"
        heard.append(manager.recv(100))
    for _ in range(2):
        assert manager.recv(100) == b"WATCHDOG=1"
    worker.send(15)
    while (word := manager.recv(100)) != b"STOPPING=1":
        assert word == b"WATCHDOG=1"
    assert worker.wait() == 0
