"""Jobs that have ended though nobody heard the answer: a connection broke at the commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from django.db import OperationalError, connection, connections

from django_pgjobs.compat import task_finished
from tests import tasks
from tests.factories import get_job
from tests.helpers import wait_until
from tests.proxy import TcpProxy
from tests.worker import tasks as worker_tasks
from tests.worker.support import Gate, ThreadedWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Start = Callable[..., ThreadedWorker]

FINISH = "status = 'successful'"


@pytest.fixture
def finished() -> Iterator[list[tuple[str, str]]]:
    """The jobs of which task_finished has told, with their statuses."""
    told: list[tuple[str, str]] = []

    def note(task_result: Any, **kwargs: Any) -> None:
        told.append((str(task_result.id), task_result.status.name))

    task_finished.connect(note)
    yield told
    task_finished.disconnect(note)


def lose_answer(monkeypatch: pytest.MonkeyPatch, *, commits: bool) -> None:
    """Let the first commit of a slot's thread get no answer; the server sees it if it *commits*."""
    wrapper, lost = type(connections["default"]), list[Any]()
    commit = wrapper.commit

    def lose(self: Any) -> None:
        if lost or not threading.current_thread().name.startswith("pgjobs-slot"):
            return commit(self)
        lost.append(self)
        if commits:
            commit(self)
        raise OperationalError("the server closed the connection unexpectedly")

    monkeypatch.setattr(wrapper, "commit", lose)


def test_an_atomic_job_whose_commit_was_not_answered_is_announced_as_done(
    start_thread: Start,
    finished: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lose_answer(monkeypatch, commits=True)
    job = tasks.record_atomic.using(max_attempts=1).enqueue("x")
    start_thread()
    wait_until(lambda: finished)
    assert finished == [(job.id, "SUCCESSFUL")]
    assert (get_job(job.id).status, get_job(job.id).attempts) == ("successful", 1)
    assert "had ended its job as successful; the answer was lost" in caplog.text
    assert "owns its job no more" not in caplog.text


def test_an_atomic_job_whose_commit_was_undone_is_announced_when_it_is_done(
    start_thread: Start, finished: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_answer(monkeypatch, commits=False)
    job = tasks.record_atomic.enqueue("x")
    start_thread()
    wait_until(lambda: finished)
    assert finished == [(job.id, "SUCCESSFUL")]
    assert get_job(job.id).attempts == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_job_whose_outcome_was_sent_twice_is_announced_once(
    start_proxied: Start,
    proxy: TcpProxy,
    gate: Gate,
    finished: list[tuple[str, str]],
    when: Literal["before", "after"],
) -> None:
    worker = start_proxied()
    job = worker_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    rule = proxy.cut_on(FINISH, when=when)
    gate.open()
    rule.wait()
    wait_until(lambda: finished)
    assert worker.stop() == 0
    assert finished == [(job.id, "SUCCESSFUL")]


def test_a_job_that_another_attempt_has_is_not_announced(
    start_proxied: Start, proxy: TcpProxy, gate: Gate, finished: list[tuple[str, str]]
) -> None:
    """The claim has risen, and somebody else has ended it."""
    worker = start_proxied()
    job = worker_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET claim = claim + 1, status = 'successful', finished_at = now(),"
            " worker_id = NULL WHERE id = %s",
            [job.id],
        )
    rule = proxy.cut_on(FINISH, when="before")
    gate.open()
    rule.wait()
    other = tasks.add.enqueue(1, 2)
    wait_until(lambda: finished)
    assert worker.stop() == 0
    assert finished == [(other.id, "SUCCESSFUL")]
