"""A process that gets no more threads runs jobs in those that it has."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from django_pgjobs.worker.process.exit_status import EXIT_QUIT
from tests import tasks as common
from tests.factories import count_jobs, get_job
from tests.helpers import wait_until
from tests.worker import tasks
from tests.worker.support import Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the slots that cannot be had; a test adds to them."""
    refused: set[str] = set()
    start = threading.Thread.start

    def start_or_refuse(thread: threading.Thread) -> None:
        if thread.name in refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_refuse)
    return refused


@pytest.mark.parametrize("most", [1, 2])
def test_jobs_run_in_the_slots_that_there_are(
    start_thread: Callable[..., ThreadedWorker],
    scarce: set[str],
    caplog: pytest.LogCaptureFixture,
    most: int,
) -> None:
    scarce |= {f"pgjobs-slot-{number}" for number in range(most + 1, 20)}
    common.sleep_for.enqueue_many([(0.02,)] * 12)
    worker = start_thread(concurrency=8)
    wait_until(lambda: count_jobs(status="successful") == 12)
    assert worker.runner.slots.most == most
    assert f"goes on with {most} slots" in caplog.text
    assert count_jobs(status="successful", attempts=1) == 12
    assert worker.stop() == 0


@pytest.mark.slow
def test_without_any_slot_the_worker_ends(
    start_thread: Callable[..., ThreadedWorker], scarce: set[str]
) -> None:
    scarce.add("pgjobs-slot-1")
    common.add.enqueue(1, 2)
    assert start_thread(concurrency=8).join() == 1


def test_the_last_words_need_no_thread(
    start_thread: Callable[..., ThreadedWorker], scarce: set[str], gate: Gate
) -> None:
    scarce.add("pgjobs-exit")
    job = tasks.wait_at_gate.enqueue()
    worker = start_thread()
    gate.wait_entered()
    worker.send(signal.SIGQUIT)
    assert worker.join() == EXIT_QUIT
    assert get_job(job.id).status == "ready"
