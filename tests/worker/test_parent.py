"""What a child says to its supervisor, whatever a task does to standard input."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from django_pgjobs.worker.process.parent import ALIVE, READY, Parent


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The supervisor's end of a socket, and the one that is standard input."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def make_parent(ends: tuple[socket.socket, socket.socket]) -> Iterator[Callable[[], Parent]]:
    made: list[Parent] = []

    def make() -> Parent:
        made.append(Parent(ends[1].fileno()))
        return made[-1]

    yield make
    for parent in made:
        os.close(parent._channel)


Ends = tuple[socket.socket, socket.socket]


def test_a_task_that_closes_standard_input_does_not_silence_its_process(
    ends: Ends, make_parent: Callable[[], Parent]
) -> None:
    ours, theirs = ends
    parent = make_parent()
    theirs.close()
    parent.tell_ready()
    parent.tell_alive()
    assert ours.recv(10) == READY + ALIVE


@pytest.mark.time_limit(10)
def test_nobody_waits_for_a_supervisor_that_does_not_listen(
    ends: Ends, make_parent: Callable[[], Parent]
) -> None:
    """It may be stopped, or gone."""
    ours, _ = ends
    parent = make_parent()
    for _ in range(5_000):
        parent.tell_alive()
    assert set(ours.recv(4096)) == set(ALIVE)
    ours.close()
    parent.tell_alive()


def test_the_end_of_the_supervisor_is_noticed(
    ends: Ends, make_parent: Callable[[], Parent]
) -> None:
    ours, _ = ends
    reasons: list[str] = []
    stopped = threading.Event()

    def stop(reason: str) -> None:
        reasons.append(reason)
        stopped.set()

    make_parent().end_with(stop)
    ours.close()
    assert stopped.wait(15)
    assert reasons == ["the supervisor is gone"]


def test_a_supervisor_that_dies_before_it_reads_is_gone_as_well(
    ends: Ends, make_parent: Callable[[], Parent], caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel resets a socket that is closed with something unread."""
    ours, _ = ends
    parent = make_parent()
    stopped = threading.Event()
    parent.tell_ready()
    ours.close()
    parent.end_with(lambda reason: stopped.set())
    assert stopped.wait(15)
    assert not caplog.records
