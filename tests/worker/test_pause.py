"""Pauses in a whole worker: what it holds and has not begun, and when it looks again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction

from django_pgjobs import pause, resume
from django_pgjobs.models import Pause
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming import pump
from tests import tasks
from tests.factories import count_jobs, get_job, get_worker, make_job, make_jobs
from tests.helpers import wait_until
from tests.worker import tasks as gate_tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def wait_until_listening(worker: ThreadedWorker) -> None:
    wait_until(lambda: get_worker(worker.id).listening)


def hold_unbegun_jobs(start_thread: Start, gate: Gate) -> list[int]:
    """Let a worker with one slot, which is taken, claim jobs ahead; return their ids."""
    worker = start_thread(concurrency=1, poll_interval=NEVER)
    worker.runner.slots.mean_duration = 0.001
    # For one claim: behind a job that has run for 50 ms none would be held.
    with transaction.atomic():
        first = gate_tasks.wait_at_gate.enqueue()
        make_jobs(5)
    gate.wait_entered()
    wait_until(lambda: count_jobs(status="running") == 6)
    assert get_job(first.id).status == "running"
    return [attempt.id for attempt in worker.runner.slots.buffer]


def test_what_was_claimed_and_not_begun_goes_back_when_its_queue_is_paused(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1.15: nothing starts after the pause; what runs goes on."""
    monkeypatch.setattr(pump, "HOARD_SECONDS", NEVER)
    unbegun = hold_unbegun_jobs(start_thread, gate)
    assert len(unbegun) == 5
    pause(queue="default")
    wait_until(lambda: count_jobs(status="ready") == 5)
    for job_id in unbegun:
        job = get_job(job_id)
        assert (job.attempts, job.note) == (0, pump.CONTROL_NOTE)
    gate.open()
    wait_until(lambda: count_jobs(status="successful") == 1)
    assert count_jobs(status="ready", attempts=0) == 5
    resume(queue="default")
    wait_until(lambda: count_jobs(status="successful") == 6)


def test_what_a_claim_under_way_brings_goes_back_as_well(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notification may be faster than the answer to the claim."""
    worker = start_thread(concurrency=1, poll_interval=NEVER)
    wait_until_listening(worker)
    round_trip, recall = OwnConnection.round_trip, pump.Pump.recall
    paused, recalled = threading.Event(), threading.Event()

    def pause_before_the_answer(self: OwnConnection, sends: Any) -> Any:
        answers = round_trip(self, sends)
        if self.role == "pump" and not paused.is_set():
            paused.set()
            pause(queue="default")
            connections.close_all()  # those of the pump's thread
            assert recalled.wait(15)
        return answers

    def note_recall(self: pump.Pump, *note: str) -> None:
        recall(self, *note)
        recalled.set()

    monkeypatch.setattr(OwnConnection, "round_trip", pause_before_the_answer)
    monkeypatch.setattr(pump.Pump, "recall", note_recall)
    job = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).note == pump.CONTROL_NOTE)
    assert (get_job(job.id).status, get_job(job.id).attempts) == ("ready", 0)
    resume(queue="default")
    wait_until(lambda: get_job(job.id).status == "successful")


@pytest.mark.parametrize(
    "target",
    [{"queue": "default"}, {"task": tasks.add}, {"key": "shop:*"}],
    ids=["queue", "task", "key"],
)
def test_idle_workers_look_at_once_when_something_is_resumed(
    start_thread: Start, target: dict[str, str]
) -> None:
    """The poll would come in an hour."""
    pause(**target)
    job_id = make_job(concurrency_key="shop:7")
    worker = start_thread(poll_interval=NEVER)
    wait_until_listening(worker)
    assert get_job(job_id).attempts == 0
    resume(**target)
    wait_until(lambda: get_job(job_id).status == "successful")


def test_the_poll_notices_that_a_pause_is_over(start_thread: Start) -> None:
    pause(queue="default", until=timedelta(seconds=0.5))
    over_at = Pause.objects.get().resume_at
    job_id = make_job()
    start_thread(poll_interval=0.1)
    wait_until(lambda: get_job(job_id).status == "successful")
    assert get_job(job_id).last_attempted_at >= over_at


def test_without_listen_the_poll_notices_a_resume(start_thread: Start) -> None:
    pause(queue="default")
    job_id = make_job()
    start_thread(poll_interval=0.1, listen=False)
    resume(queue="default")
    wait_until(lambda: get_job(job_id).status == "successful")
