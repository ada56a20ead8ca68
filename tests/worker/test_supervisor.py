"""The supervisor's decisions: which child is started again, and when it looks next."""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from django_pgjobs.worker import stillness
from django_pgjobs.worker.process import supervisor as supervisor_module
from django_pgjobs.worker.process.exit_status import EXIT_CRASHED, EXIT_DISMISSED, EXIT_RELOAD
from django_pgjobs.worker.process.parent import ALIVE, READY
from django_pgjobs.worker.process.supervisor import (
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    LOOK_SECONDS,
    MAX_BACKOFF_SECONDS,
    QUICK_SECONDS,
    READY_LOOK_SECONDS,
    SILENT_SECONDS,
    Child,
    Supervisor,
    own_flags,
)
from tests.worker.support import make_options


@pytest.mark.parametrize(("processes", "names"), [(1, ["web"]), (2, ["web-1", "web-2"])])
def test_a_name_is_numbered_only_beside_others(processes: int, names: list[str]) -> None:
    """As for one that `--reload` restarts."""
    options = make_options(name="web")
    flags = [own_flags(options, number + 1, processes) for number in range(processes)]
    assert flags == [["--name", name] for name in names]


class FakeProcess:
    """What the supervisor sees of a child process."""

    def __init__(self, standard_input: int) -> None:
        self.code: int | None = None
        self.received: list[int] = []
        self.channel = socket.socket(fileno=socket.dup(standard_input))

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: int) -> None:
        self.received.append(number)

    def become_ready(self) -> None:
        self.channel.send(READY)

    def give_sign(self) -> None:
        self.channel.send(ALIVE)

    def kill(self) -> None:
        self.received.append(signal.SIGKILL)

    def end(self, code: int) -> None:
        self.code = code
        self.channel.close()


class Supervising:
    """A supervisor of two places, and the processes that it has started so far."""

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.supervisor = Supervisor([], make_options(), processes=2)
        self.children: list[Child] = self.supervisor._children

    def start(self, command: list[str], *, stdin: int, **options: object) -> FakeProcess:
        self.started.append(FakeProcess(stdin))
        return self.started[-1]

    def look(self) -> None:
        """Do what the supervisor does after each time it waited."""
        for child in self.children:
            self.supervisor._look_after(child)
        self.supervisor._replace_next()

    def begin(self) -> tuple[FakeProcess, FakeProcess]:
        """Start both places, and let their processes work."""
        self.look()
        first, second = self.started
        first.become_ready()
        second.become_ready()
        return first, second

    def seconds_to_wait(self) -> float | None:
        return self.supervisor._seconds_to_wait()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervising]:
    """A supervisor whose processes are none."""
    made = Supervising()
    monkeypatch.setattr(supervisor_module.subprocess, "Popen", made.start)
    yield made
    for process in made.started:
        process.channel.close()
    for child in made.children:
        if child.channel is not None:
            child.channel.close()


@pytest.mark.parametrize("code", [EXIT_USAGE, EXIT_UNREACHABLE])
def test_places_whose_first_processes_cannot_start_are_given_up(
    made: Supervising, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    made.look()
    for process in made.started:
        process.end(code)
    made.look()
    assert all(child.is_done for child in made.children)
    assert f"child 1 ended with status {code}; it cannot start and is given up" in caplog.text
    assert made.supervisor._exit_status() == code


@pytest.mark.parametrize("code", [EXIT_USAGE, EXIT_UNREACHABLE])
def test_a_place_whose_process_worked_before_is_never_given_up(
    made: Supervising, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """A crash, and the next process finds no database."""
    first, _ = made.begin()
    first.end(EXIT_CRASHED)
    made.look()
    for _ in range(3):
        made.children[0].start_at = 0.0
        made.look()
        made.started[-1].end(code)
        made.look()
    assert not made.children[0].is_done
    assert caplog.text.count(f"child 1 ended with status {code}; started again in") == 3
    pause = made.children[0].start_at - time.monotonic()
    assert pause == pytest.approx(8.0, abs=1.0)
    assert made.seconds_to_wait() == LOOK_SECONDS


def test_a_place_is_not_given_up_when_only_another_one_has_worked(made: Supervising) -> None:
    """Nobody may have noticed yet that the other one is ready."""
    made.look()
    first, second = made.started
    second.become_ready()
    first.end(EXIT_UNREACHABLE)
    made.look()
    assert not made.children[0].is_done


def test_when_a_new_process_cannot_start_the_others_stay_and_it_is_tried_again(
    made: Supervising, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = made.begin()
    made.look()
    made.supervisor._handle(signal.SIGHUP)
    made.look()
    assert (first.received, second.received) == ([signal.SIGHUP], [])
    first.end(EXIT_RELOAD)
    made.look()
    made.look()
    made.started[-1].end(EXIT_UNREACHABLE)
    made.look()
    assert "the others stay as they are" in caplog.text
    made.children[0].start_at = 0.0
    made.look()
    made.started[-1].become_ready()
    made.look()
    assert len(made.started) == 4
    assert second.received == []


def test_a_supervisor_that_is_stopped_while_a_child_waits_for_the_database_ends_well(
    made: Supervising, caplog: pytest.LogCaptureFixture
) -> None:
    """Status 3 says that the supervisor itself could not start."""
    caplog.set_level(logging.INFO)
    first, second = made.begin()
    first.end(EXIT_UNREACHABLE)
    made.look()
    made.supervisor._handle(signal.SIGTERM)
    second.end(0)
    made.look()
    assert all(child.is_done for child in made.children)
    assert made.supervisor._exit_status() == 0


def test_a_supervisor_that_is_stopped_while_hup_replaces_a_child_ends_well(
    made: Supervising,
) -> None:
    """Status 76 asks for another start: of a child, but not of what was told to stop."""
    first, second = made.begin()
    made.supervisor._handle(signal.SIGHUP)
    made.look()
    made.supervisor._handle(signal.SIGTERM)
    first.end(EXIT_RELOAD)
    second.end(0)
    made.look()
    assert all(child.is_done for child in made.children)
    assert made.supervisor._exit_status() == 0


def test_hup_does_not_keep_the_supervisor_looking_for_a_place_that_is_left_empty(
    made: Supervising,
) -> None:
    first, second = made.begin()
    first.end(EXIT_DISMISSED)
    made.look()
    assert made.seconds_to_wait() == LOOK_SECONDS
    made.supervisor._handle(signal.SIGHUP)
    assert made.seconds_to_wait() == READY_LOOK_SECONDS
    made.look()
    assert second.received == [signal.SIGHUP]
    assert made.seconds_to_wait() == LOOK_SECONDS


def test_a_process_that_fails_after_a_while_is_started_again_at_once(made: Supervising) -> None:
    first, _ = made.begin()
    made.look()
    made.children[0].started_at = time.monotonic() - QUICK_SECONDS - 1
    first.end(EXIT_UNREACHABLE)
    made.look()
    made.look()
    assert len(made.started) == 3


def test_when_the_last_place_is_left_empty_the_supervisor_waits_for_nothing_more(
    made: Supervising,
) -> None:
    for process in made.begin():
        process.end(EXIT_DISMISSED)
    made.look()
    assert made.supervisor._is_done()
    assert made.seconds_to_wait() == 0.0


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which silence is measured."""
    clock = Clock()
    monkeypatch.setattr(stillness, "time", clock)
    return clock


def look_for(made: Supervising, clock: Clock, seconds: float, *talking: FakeProcess) -> None:
    """Look once a second for so long; some processes give signs of life."""
    for _ in range(round(seconds)):
        clock.now += 1.0
        for process in talking:
            process.give_sign()
        made.look()


PATIENCE = 2 * make_options().lease + SILENT_SECONDS


def test_a_process_that_gives_no_sign_of_life_any_more_is_killed_and_its_place_filled(
    made: Supervising, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = made.begin()
    look_for(made, clock, PATIENCE, second)
    assert first.received == []
    look_for(made, clock, 5.0, second)
    assert (first.received, second.received) == ([signal.SIGKILL], [])
    assert caplog.text.count("child 1 has given no sign of life for 131 s") == 1
    first.end(-signal.SIGKILL)
    made.look()
    made.children[0].start_at = 0.0
    made.look()
    assert len(made.started) == 3


def test_a_process_that_is_not_ready_yet_may_be_silent(made: Supervising, clock: Clock) -> None:
    made.look()
    look_for(made, clock, 2 * PATIENCE)
    assert [process.received for process in made.started] == [[], []]


def test_a_frozen_process_is_killed_although_it_was_asked_to_be_replaced(
    made: Supervising, clock: Clock
) -> None:
    first, second = made.begin()
    made.look()
    made.supervisor._handle(signal.SIGHUP)
    look_for(made, clock, PATIENCE + 5.0, second)
    assert first.received == [signal.SIGHUP, signal.SIGKILL]


def test_silence_in_which_the_supervisor_was_paused_itself_does_not_count(
    made: Supervising, clock: Clock
) -> None:
    processes = made.begin()
    made.look()
    for _ in range(3):
        clock.now += 3600.0
        made.look()
        look_for(made, clock, PATIENCE / 2)
        look_for(made, clock, 1.0, *processes)
    assert [process.received for process in processes] == [[], []]


def test_a_sign_of_life_does_not_say_that_a_process_is_ready_again(made: Supervising) -> None:
    """It is on its way out, and the next one has to wait until another takes its place."""
    first, second = made.begin()
    made.look()
    made.supervisor._handle(signal.SIGHUP)
    made.look()
    for _ in range(3):
        first.give_sign()
        made.look()
    assert (first.received, second.received) == ([signal.SIGHUP], [])


@pytest.mark.parametrize("code", [EXIT_USAGE, EXIT_UNREACHABLE])
def test_a_place_that_was_given_up_is_tried_again_slowly_when_another_one_works(
    made: Supervising, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    made.look()
    first, second = made.started
    first.end(code)
    made.look()
    child = made.children[0]
    assert child.is_done
    second.become_ready()
    made.look()
    for _ in range(2):
        assert child.start_at - time.monotonic() == pytest.approx(MAX_BACKOFF_SECONDS, abs=1.0)
        made.look()
        started = len(made.started)
        child.start_at = 0.0
        made.look()
        assert len(made.started) == started + 1
        made.started[-1].end(code)
        made.look()
    assert not child.is_done


def test_no_place_is_tried_again_after_the_supervisor_was_told_to_stop(made: Supervising) -> None:
    made.look()
    first, second = made.started
    first.end(EXIT_UNREACHABLE)
    made.look()
    made.supervisor._handle(signal.SIGTERM)
    second.become_ready()
    second.end(0)
    made.look()
    made.look()
    assert made.supervisor._is_done()
    assert len(made.started) == 2


def test_a_place_that_was_asked_to_be_empty_is_not_tried_again(made: Supervising) -> None:
    made.look()
    first, second = made.started
    first.end(EXIT_DISMISSED)
    made.look()
    second.become_ready()
    made.look()
    assert made.children[0].is_done
