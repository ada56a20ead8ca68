"""The flag by which enqueues notify a worker: when it is set, and when it is taken back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from django.db import transaction

from django_pgjobs.queries import workers
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep import listening, look
from django_pgjobs.worker.upkeep.listening import BUSY_SECONDS, FULL_SECONDS, Listening
from tests.factories import get_job, get_worker, make_job
from tests.helpers import wait_until
from tests.worker import tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker, make_options


class Flag:
    """The duty of a worker that hears of jobs and has found none for long."""

    def __init__(self) -> None:
        self.outlook: Any = mock.Mock(waits_for_news=True, is_idle=True, waited_at=0.0)
        self.look: Any = mock.Mock(is_quiet=True, due_at=lambda now: 0.0)
        state = WorkerState(make_options(), "test:1", worker_id=7)
        own: Any = None
        self.duty = Listening(state, self.outlook, own, self.look, hears=lambda: True)

    @property
    def is_due(self) -> bool:
        """Is there something to write?"""
        now = time.monotonic()
        return self.duty.due_at(now) <= now

    def write(self, *, is_answered: bool = True, is_locked: bool = False) -> bool:
        """Write what is due; return whether that sets the flag."""
        turn = Turn(7)
        self.duty.plan(turn)
        if is_answered:
            turn.receive([[] if is_locked else [(7,)]])
        [send] = turn.sends
        keywords: dict[str, Any] = getattr(send, "keywords", {})
        return bool(keywords["listening"])


def test_it_is_taken_back_whose_answer_was_lost_and_set_again() -> None:
    """Or the worker would believe that it is set, and hear of nothing."""
    flag = Flag()
    assert flag.is_due and flag.write()
    assert not flag.is_due
    flag.outlook.waits_for_news = False
    assert flag.is_due and not flag.write(is_answered=False)
    flag.outlook.waits_for_news = True
    flag.duty.begin_anew()
    assert flag.is_due and not flag.write()
    assert flag.is_due and flag.write()
    assert flag.duty.is_said


@pytest.mark.parametrize(("is_idle", "pause"), [(True, FULL_SECONDS), (False, BUSY_SECONDS)])
def test_a_worker_with_full_slots_keeps_it_for_longer_than_one_that_finds_jobs(
    is_idle: bool, pause: float
) -> None:
    flag = Flag()
    flag.write()
    flag.outlook.waits_for_news, flag.outlook.is_idle = False, is_idle
    flag.outlook.waited_at = 100.0
    assert flag.duty.due_at(100.0) == 100.0 + pause


def test_a_worker_that_waits_for_no_news_does_not_say_so() -> None:
    """If its queues have slots of their own it hears of jobs even when all of them are taken."""
    flag = Flag()
    flag.outlook.waits_for_news = False
    assert flag.duty.due_at(0.0) == math.inf


def test_a_worker_that_waits_for_news_again_says_so_before_a_look_that_is_far() -> None:
    """While it had jobs, the gaps between its looks have become those of the poll interval."""
    flag = Flag()
    now = time.monotonic()
    flag.look.due_at = lambda now: now + NEVER
    assert flag.duty.due_at(now) <= now
    assert flag.write()
    flag.look.take_over.assert_called_once_with()


@pytest.mark.parametrize("seconds", [0.01, 5.0])
def test_a_worker_whose_looks_are_slow_says_so_before_it_has_looked_often_in_vain(
    seconds: float,
) -> None:
    """Until the pause after a slow look is over it would neither look nor be told."""
    flag = Flag()
    flag.look.is_quiet = False
    flag.look.due_at = lambda now: now + seconds
    now = time.monotonic()
    assert (flag.duty.due_at(now) <= now) is (seconds > look.LISTEN_AFTER_SECONDS)


def test_a_row_that_somebody_holds_is_tried_again_a_little_later() -> None:
    flag = Flag()
    flag.write(is_locked=True)
    assert not flag.duty.is_said
    assert 0 < flag.duty.due_at(0.0) - time.monotonic() < math.inf
    assert flag.look.look_by.called


@pytest.mark.django_db(transaction=True)
def test_a_worker_with_slots_of_a_queue_is_notified_after_a_long_job(
    start_thread: Callable[..., ThreadedWorker], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of jobs all the time, and looked for some while its threads were taken."""
    monkeypatch.setattr(look, "BUSY_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(listening, "FULL_SECONDS", 0.01)
    said: list[bool] = []
    set_listening = workers.set_listening

    def note(cursor: Any, *, worker_id: int, listening: bool) -> None:
        said.append(listening)
        set_listening(cursor, worker_id=worker_id, listening=listening)

    monkeypatch.setattr(workers, "set_listening", note)
    tasks.wait_at_gate.enqueue()
    worker = start_thread(concurrency=1, queue_slots={"default": 1}, poll_interval=NEVER)
    gate.wait_entered()
    duties = worker.runner.upkeep._duties
    wait_until(lambda: duties.look._gap == NEVER)
    assert not any(said)
    gate.open()
    wait_until(lambda: get_worker(worker.id).listening)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_transaction_from_before_the_flag_that_outlasts_the_look_is_not_left_to_the_poll(
    start_thread: Callable[..., ThreadedWorker], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trigger notifies nobody, and the gaps between looks may be the poll interval by then."""
    monkeypatch.setattr(look, "BUSY_LOOK_SECONDS", 0.01)
    said_at: list[float] = []
    set_listening = workers.set_listening

    def note(cursor: Any, *, worker_id: int, listening: bool) -> None:
        said_at.append(time.monotonic())
        set_listening(cursor, worker_id=worker_id, listening=listening)

    monkeypatch.setattr(workers, "set_listening", note)
    tasks.wait_at_gate.enqueue()
    worker = start_thread(concurrency=1, queue_slots={"default": 1}, poll_interval=NEVER)
    gate.wait_entered()
    duty = worker.runner.upkeep._duties.look
    wait_until(lambda: duty._gap == NEVER)
    with transaction.atomic():
        job = make_job()
        assert not said_at
        gate.open()
        wait_until(lambda: said_at and duty._looked_at > said_at[-1])
        assert get_worker(worker.id).listening
    wait_until(lambda: get_job(job).status == "successful")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_slots_are_taken_is_not_notified(
    start_thread: Callable[..., ThreadedWorker], gate: Gate
) -> None:
    worker = start_thread(concurrency=1, poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    wait_until(lambda: not get_worker(worker.id).listening)
    gate.open()
    wait_until(lambda: get_worker(worker.id).listening)
