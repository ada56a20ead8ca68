"""task_started and task_finished, as django.tasks documents them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection

from django_pgjobs import signals
from django_pgjobs.backend import PgJobsBackend
from django_pgjobs.compat import TaskResultStatus, task_finished, task_started
from django_pgjobs.worker.process import worker_process
from django_pgjobs.worker.running import announcer
from django_pgjobs.worker.running.outcome import Kind
from tests import tasks
from tests.factories import get_job
from tests.helpers import WAIT_SECONDS, wait_until
from tests.models import Effect
from tests.worker.support import Bench, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


class Heard:
    """What the receivers of the test heard."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []
        self.stored: list[str] = []
        self.exceptions: list[type | None] = []
        self.threads: set[str] = set()
        self.raises: BaseException | None = None

    def started(self, sender: Any, task_result: Any, **kwargs: Any) -> None:
        self.calls.append(("started", sender, task_result))
        self._end()

    def finished(self, sender: Any, task_result: Any, **kwargs: Any) -> None:
        self.calls.append(("finished", sender, task_result))
        self.stored.append(get_job(task_result.id).status)
        self.exceptions.append(sys.exc_info()[0])
        self.threads.add(threading.current_thread().name)
        self._end()

    def of(self, name: str) -> list[Any]:
        """Return the results that came with the signal of that name."""
        return [result for called, _, result in self.calls if called == name]

    def _end(self) -> None:
        if self.raises is not None:
            raise self.raises


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Connect receivers to both signals."""
    made = Heard()
    task_started.connect(made.started)
    task_finished.connect(made.finished)
    yield made
    task_started.disconnect(made.started)
    task_finished.disconnect(made.finished)


@pytest.mark.parametrize("task", [tasks.add, tasks.add_async])
def test_both_signals_are_sent_by_the_class_of_the_backend(
    drain: Start, heard: Heard, task: Any
) -> None:
    job = task.enqueue(1, 2)
    drain()
    assert [(name, sender) for name, sender, _ in heard.calls] == [
        ("started", PgJobsBackend),
        ("finished", PgJobsBackend),
    ]
    [started], [finished] = heard.of("started"), heard.of("finished")
    assert started.id == finished.id == job.id
    assert (started.status, finished.status) == (
        TaskResultStatus.RUNNING,
        TaskResultStatus.SUCCESSFUL,
    )
    assert started.started_at is not None
    assert (started.args, finished.return_value) == ([1, 2], 3)


@pytest.mark.slow
def test_task_finished_is_sent_when_the_outcome_is_stored(drain: Start, heard: Heard) -> None:
    """S2.1."""
    tasks.add.enqueue(1, 2)
    tasks.fail_once.enqueue()
    tasks.record_atomic.enqueue("x")
    drain()
    assert sorted(heard.stored) == ["failed", "successful", "successful"]


def test_a_failure_is_at_hand_as_the_current_exception(drain: Start, heard: Heard) -> None:
    """Django's own receiver logs it with its traceback."""
    tasks.fail_once.enqueue("broken")
    drain()
    assert heard.exceptions == [tasks.Mishap]
    [finished] = heard.of("finished")
    assert finished.status == TaskResultStatus.FAILED
    assert finished.errors[0].exception_class is tasks.Mishap
    assert "broken" in finished.errors[0].traceback


def test_a_success_has_no_current_exception(drain: Start, heard: Heard) -> None:
    tasks.add.enqueue(1, 2)
    drain()
    assert heard.exceptions == [None]


@pytest.mark.slow
def test_attempts_that_are_tried_again_start_each_and_finish_once(
    drain: Start, heard: Heard
) -> None:
    tasks.fail.enqueue()
    drain()
    assert len(heard.of("started")) == 3
    assert [result.attempts for result in heard.of("started")] == [1, 2, 3]
    assert len(heard.of("finished")) == 1


@pytest.mark.parametrize("error", [ValueError("receiver"), RuntimeError("\ud800"), SystemExit(1)])
def test_a_receiver_that_raises_changes_nothing(
    drain: Start, heard: Heard, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged."""
    heard.raises = error
    good, bad = tasks.add.enqueue(1, 2), tasks.fail_once.enqueue()
    drain()
    assert [get_job(job.id).status for job in (good, bad)] == ["successful", "failed"]
    assert len(heard.of("finished")) == 2
    assert "receiver" in caplog.text


def test_a_receiver_of_the_end_runs_beside_the_slots_and_the_pump(
    drain: Start, heard: Heard
) -> None:
    tasks.add.enqueue(1, 2)
    drain()
    assert heard.threads == {"pgjobs-announcer"}


def test_receivers_use_the_database_like_jobs(drain: Start) -> None:
    """Whatever they leave open does not stay open."""

    def receive(task_result: Any, **kwargs: Any) -> None:
        Effect.objects.create(key="announced", job_id=int(task_result.id))

    task_finished.connect(receive)
    try:
        for _ in range(5):
            tasks.add.enqueue(1, 2)
        drain()
    finally:
        task_finished.disconnect(receive)
    assert Effect.objects.filter(key="announced").count() == 5


@pytest.mark.slow
def test_a_receiver_that_blocks_holds_up_no_job(start_thread: Start) -> None:
    """S1.14."""
    blocked, release = threading.Event(), threading.Event()

    def receive(**kwargs: Any) -> None:
        blocked.set()
        release.wait(15)

    task_finished.connect(receive)
    try:
        start_thread(concurrency=1)
        tasks.add.enqueue(1, 2)
        assert blocked.wait(15)
        jobs = [tasks.add.enqueue(1, 2) for _ in range(5)]
        wait_until(lambda: {get_job(job.id).status for job in jobs} == {"successful"})
    finally:
        release.set()
        task_finished.disconnect(receive)


def test_nobody_listens_as_long_as_only_django_does() -> None:
    """Building a TaskResult for a line that nobody writes is saved."""
    assert not signals.has_receivers(task_started)
    assert not signals.has_receivers(task_finished, failed=True)


def test_a_worker_whose_receivers_are_slow_waits_until_they_have_caught_up(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it would remember more and more jobs, and forget to tell of them when it ends."""
    monkeypatch.setattr(announcer, "MOST_WAITING", 3)
    gate, told = threading.Event(), list[str]()

    def receive(task_result: Any, **kwargs: Any) -> None:
        assert gate.wait(WAIT_SECONDS)
        told.append(task_result.id)

    task_finished.connect(receive)
    try:
        jobs = [tasks.add.enqueue(1, 2) for _ in range(10)]
        worker = start_thread(listen=False, poll_interval=0.1)
        outlook, state = worker.runner.pump.outlook, worker.runner.state
        wait_until(lambda: state.finished_jobs and not (state.held or outlook.wants_jobs))
        assert "receivers of task_finished are slower" in caplog.text
        jobs.append(tasks.add.enqueue(1, 2))
        gate.set()
        wait_until(lambda: sorted(told) == sorted(job.id for job in jobs))
    finally:
        gate.set()
        task_finished.disconnect(receive)


def test_ends_that_a_worker_has_no_time_to_announce_are_logged(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_process, "LAST_SECONDS", 0.1)
    gate = threading.Event()

    def receive(**kwargs: Any) -> None:
        assert gate.wait(WAIT_SECONDS)

    task_finished.connect(receive)
    try:
        worker = start_thread(shutdown_timeout=0.1)
        for _ in range(3):
            tasks.add.enqueue(1, 2)
        wait_until(lambda: worker.runner.state.finished_jobs == 3)
        worker.stop()
        assert "task_finished is not sent for 2 jobs" in caplog.text
    finally:
        gate.set()
        task_finished.disconnect(receive)


def test_a_job_without_a_connection_does_not_begin_and_is_not_announced(
    bench: Bench, heard: Heard
) -> None:
    tasks.record_atomic.enqueue("x")
    attempt = bench.claim()
    connection.close()
    refusal = OperationalError("sorry, too many clients already")
    with mock.patch.object(connection, "connect", side_effect=refusal):
        assert bench.run(attempt).kind is Kind.RELEASE
    assert heard.calls == []


def test_a_connection_that_is_lost_while_receivers_are_told_uses_up_no_attempt(
    bench: Bench, heard: Heard
) -> None:
    job = tasks.record_atomic.using(max_attempts=1).enqueue("x")
    attempt = bench.claim()

    def close(**kwargs: Any) -> None:
        connection.close()
        blocked.start()

    refusal = OperationalError("sorry, too many clients already")
    blocked = mock.patch.object(connection, "connect", side_effect=refusal)
    task_started.connect(close)
    try:
        assert bench.run(attempt).kind is Kind.RELEASE
    finally:
        task_started.disconnect(close)
        blocked.stop()
    assert get_job(job.id).attempts == 0
