"""The process ends if a part of it stands still, and does not if it only waits."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from django_pgjobs.queries import connection as connection_module
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker import stillness
from django_pgjobs.worker.process import vitals
from django_pgjobs.worker.process.exit_status import EXIT_RESTART
from django_pgjobs.worker.process.signal_pipe import SignalPipe, say_past_log, write_at_once
from django_pgjobs.worker.process.vitals import STILL_SECONDS, Vitals
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger, oldest_call
from django_pgjobs.worker.stillness import WAITS
from tests.helpers import wait_until


class Clock:
    """A clock that goes when it is told to."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which stillness is measured."""
    clock = Clock()
    monkeypatch.setattr(stillness, "time", clock)
    return clock


class Ended(BaseException):
    """The process would have ended."""


class Looked:
    """Vitals of one part, looked at once a second by a clock of its own."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = clock
        self.mark = 1.0
        self.signs = 0
        self.loses_jobs = False
        self.left: list[Any] = []
        self.said: list[str] = []
        self.vitals = Vitals(
            {"the part": lambda: self.mark},
            farewell=self,  # type: ignore[arg-type]
            tell_alive=self.give_sign,
            on_crash=lambda role: None,
        )
        monkeypatch.setattr(self.vitals, "wait", self.wait)
        monkeypatch.setattr(vitals, "say_past_log", self.said.append)
        monkeypatch.setattr(vitals.os, "_exit", self.exit)

    def give_sign(self) -> None:
        self.signs += 1

    def leave_everything(self, timeout: float) -> None:
        self.left.append("given back")

    def exit(self, code: int) -> None:
        self.left.append(code)
        raise Ended

    def wait(self, timeout: float) -> None:
        self.clock.now += timeout
        self.between()
        if self.clock.now >= self.until:
            self.vitals.stop_requested = True

    def between(self) -> None:
        """Do what happens between two looks."""

    def run(self, seconds: float) -> None:
        self.until = self.clock.now + seconds
        self.vitals.stop_requested = False
        with contextlib.suppress(Ended):
            self.vitals.run()


@pytest.fixture
def looked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(clock, monkeypatch)


def test_the_process_ends_if_a_part_stands_still(looked: Looked) -> None:
    looked.run(STILL_SECONDS)
    assert looked.left == []
    looked.run(5.0)
    assert looked.left == ["given back", EXIT_RESTART]
    assert looked.loses_jobs
    assert "the part has stood still for 61 s" in looked.said[0]
    # Where this thread is.
    assert " run < " in looked.said[0]


def test_a_part_that_moves_now_and_then_does_not_stand_still(looked: Looked) -> None:
    for _ in range(5):
        looked.run(STILL_SECONDS - 2)
        looked.mark += 1.0
    assert looked.left == []
    assert looked.signs > 5 * (STILL_SECONDS - 3)


def test_a_part_that_waits_does_not_stand_still(looked: Looked) -> None:
    looked.mark = WAITS
    looked.run(10 * STILL_SECONDS)
    assert looked.left == []


def test_a_pause_of_the_machine_is_no_standing_still(looked: Looked) -> None:
    looked.run(STILL_SECONDS / 2)
    looked.clock.now += 3600.0
    looked.run(STILL_SECONDS / 3)
    assert looked.left == []


def test_an_end_that_takes_too_long_is_cut_off_with_the_status_that_was_meant(
    looked: Looked,
) -> None:
    looked.mark = WAITS
    looked.vitals.end_within(10.0, 131)
    looked.run(9.0)
    assert looked.left == []
    looked.run(5.0)
    assert looked.left == ["given back", 131]
    assert not looked.loses_jobs


def test_a_role_moves_with_each_round_of_its_loop_and_waits_in_between() -> None:
    go_on = threading.Semaphore(0)
    marks: list[float] = []

    class Looping(Role):
        def run(self) -> None:
            while not self.stop_requested:
                marks.append(self.moved_at)
                go_on.acquire()
                self.wait(None)

    role = Looping(on_crash=lambda name: None)
    assert role.moved_at == WAITS
    role.start()
    wait_until(lambda: len(marks) == 1)
    assert role.moved_at == marks[0] < WAITS
    go_on.release()
    wait_until(lambda: role.moved_at == WAITS)
    role.wake()
    wait_until(lambda: len(marks) == 2)
    assert marks[1] > marks[0]
    role.stop()
    go_on.release()
    assert role.join(15)
    assert role.moved_at == WAITS


@pytest.mark.django_db(transaction=True)
def test_a_connection_moves_with_each_statement(own: OwnConnection) -> None:
    """So that many of them, one after the other, are no standing still."""
    marks = [own.moved_at]
    with own.cursor() as cursor:
        marks.append(own.moved_at)
        cursor.execute("SELECT 1")
    marks.append(own.moved_at)
    own.round_trip([lambda cursor: cursor.execute("SELECT 1")])
    marks.append(own.moved_at)
    assert marks == sorted(set(marks))


@pytest.mark.django_db(transaction=True)
def test_connecting_is_waiting(own: OwnConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of many hosts that do not answer takes the worker long, again and again."""
    marks: list[float] = []

    def connect(**params: Any) -> None:
        marks.append(own.moved_at)
        raise psycopg.OperationalError("nobody is there")

    own.close()
    monkeypatch.setattr(connection_module.psycopg, "connect", connect)
    with pytest.raises(psycopg.OperationalError):
        own.open()
    assert marks == [WAITS]
    assert own.moved_at <= time.monotonic()


def test_who_waits_for_signals_waits() -> None:
    pipe = SignalPipe()
    thread = threading.Thread(target=pipe.wait, args=(15,))
    thread.start()
    wait_until(lambda: pipe.moved_at == WAITS)
    pipe.wake()
    thread.join()
    assert pipe.moved_at <= time.monotonic()
    for end in (pipe._reader, pipe._writer):
        os.close(end)


@pytest.fixture
def slow_handler() -> Iterator[Callable[[], None]]:
    """A handler that takes a line only when it is let."""
    may_write = threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            may_write.wait(15)

    handler, ours = Slow(), logging.getLogger("django_pgjobs.worker.slow")
    ours.addHandler(handler)
    yield may_write.set
    may_write.set()
    ours.removeHandler(handler)


def test_a_line_that_is_being_written_can_be_seen(slow_handler: Callable[[], None]) -> None:
    assert oldest_call() == WAITS
    log = get_logger("django_pgjobs.worker.slow")
    threads = [threading.Thread(target=log.error, args=("line",)) for _ in range(2)]
    threads[0].start()
    wait_until(lambda: oldest_call() < WAITS)
    oldest = oldest_call()
    threads[1].start()
    get_logger("django_pgjobs.worker.other").error("another line")
    assert oldest_call() == oldest
    slow_handler()
    for thread in threads:
        thread.join()
    assert oldest_call() == WAITS


@pytest.mark.time_limit(10)
def test_what_would_have_to_wait_is_not_said() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 65536)
    os.set_blocking(writer, True)
    write_at_once(writer, b"more")
    os.read(reader, 65536)
    write_at_once(writer, b"more")
    os.close(reader)
    write_at_once(writer, b"nobody reads")
    os.close(writer)
    write_at_once(writer, b"nowhere")


def test_the_last_words_go_past_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    say_past_log("\ud800 the process ends\n")
    assert capfd.readouterr().err == "? the process ends\n"
