"""The watch for new jobs: what a worker does next, and that together they leave no job lying."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest

from django_pgjobs.queries import workers
from django_pgjobs.queries.notifications import EVERYTHING, ORDERS
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep import watch
from django_pgjobs.worker.upkeep.orders import Orders
from django_pgjobs.worker.upkeep.watch import NOTHING, Watch, WatchFacts, WatchStep, next_step
from tests.worker.support import NEVER, make_options
from tests.worker.watching import Model


def known(**changes: Any) -> WatchFacts:
    given: dict[str, Any] = {
        "is_on_watch": False,
        "hears": ORDERS,
        "waits": True,
        "is_busy": False,
        "is_partial": False,
        "may_take": False,
        "may_park": False,
    }
    return WatchFacts(**(given | changes))


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        ({"may_take": True}, WatchStep.TAKE),
        ({"may_park": True}, WatchStep.HEAR_NOTHING),
        ({"may_park": True, "hears": NOTHING}, WatchStep.PARK),
        ({"hears": NOTHING}, WatchStep.HEAR_ORDERS),
        ({}, None),
        ({"waits": False, "may_take": True}, None),
        ({"waits": False, "hears": NOTHING}, WatchStep.HEAR_ORDERS),
        ({"is_on_watch": True}, WatchStep.HEAR_EVERYTHING),
        ({"is_on_watch": True, "hears": EVERYTHING}, None),
        ({"is_on_watch": True, "hears": EVERYTHING, "is_busy": True}, WatchStep.LEAVE),
        ({"is_on_watch": True, "hears": EVERYTHING, "is_partial": True}, WatchStep.LEAVE),
        ({"is_partial": True, "may_take": True}, WatchStep.HEAR_EVERYTHING),
        ({"is_partial": True, "hears": EVERYTHING}, None),
        ({"is_partial": True, "hears": EVERYTHING, "waits": False}, None),
    ],
)
def test_the_next_step_follows_from_what_is_known(facts: dict[str, Any], step: WatchStep) -> None:
    assert next_step(known(**facts)) is step


# The duty


def is_question(send: Any) -> bool:
    """Does it ask for what people ask of the worker?"""
    return getattr(send, "func", None) is workers.send_orders


@dataclass
class WatchOfIdleWorker:
    """The duty of a worker that waits for news; what the server answers is given."""

    outlook: Any = field(
        default_factory=lambda: mock.Mock(
            waits_for_news=True,
            has_room=True,
            has_full_queue=False,
            waited_at=0.0,
            claimed_at=-math.inf,
        )
    )

    def __post_init__(self) -> None:
        self.state = WorkerState(make_options(poll_interval=NEVER), "test:1")
        own = mock.Mock(listens=True, schema="public")
        self.look = mock.Mock(due_at=lambda now: math.inf)
        self.heard = 0
        self.orders = Orders(self.state, lambda: None)
        self.duty = Watch(
            self.state,
            self.outlook,
            own,
            self.look,
            others=[self.look],
            orders=self.orders,
            on_hearing=self._note_hearing,
        )

    def _note_hearing(self) -> None:
        self.heard += 1

    def act(self, *, is_taken: bool | None = None) -> int:
        """Do what is due; return how many statements that were.

        *is_taken*: what the server answers to one that takes the watch.
        """
        turn = Turn(1)
        self.duty.plan(turn)
        sends: list[Any] = turn.sends
        rows = [] if is_taken is None else [(is_taken,)]
        turn.receive([[(False, False)] if is_question(send) else rows for send in sends])
        return len(sends)

    def hold(self, seconds: float) -> None:
        """Hold a job for so long already."""
        attempt: Any = mock.Mock(claimed_at=time.monotonic() - seconds)
        self.state.held[1] = attempt
        self.duty.observe(time.monotonic())

    def seconds_to_next(self) -> float:
        now = time.monotonic()
        return self.duty.due_at(now) - now


def test_a_worker_with_jobs_asks_for_the_watch_soon_after_it_was_left() -> None:
    watch_of = WatchOfIdleWorker()
    watch_of.hold(1.0)
    watch_of.act(is_taken=False)
    assert watch_of.seconds_to_next() > watch.AGAIN_SECONDS / 2
    watch_of.duty.note_left()
    assert watch_of.seconds_to_next() <= watch.YIELD_SECONDS


def test_a_worker_with_a_long_job_leaves_the_watch_once() -> None:
    """Idle processes come first; but if there are none it goes on watching."""
    watch_of = WatchOfIdleWorker()
    watch_of.act(is_taken=True)
    watch_of.act()
    assert watch_of.duty.hears_of_jobs
    watch_of.hold(watch.LONG_SECONDS)
    assert watch_of.seconds_to_next() <= 0
    watch_of.act()
    assert not watch_of.duty.hears_of_jobs
    assert 0 < watch_of.seconds_to_next() <= watch.YIELD_SECONDS
    watch_of.duty.begin_anew()
    watch_of.act(is_taken=True)
    watch_of.act()
    assert watch_of.duty.hears_of_jobs
    assert watch_of.seconds_to_next() == math.inf


def test_a_worker_that_was_deaf_asks_what_it_has_missed() -> None:
    """Its pump may have claimed meanwhile, and somebody cancelled that job."""
    watch_of = WatchOfIdleWorker()
    watch_of.act(is_taken=False)
    watch_of.act()
    assert watch_of.heard == 0
    watch_of.hold(0.0)
    watch_of.act()
    assert watch_of.heard == 1


def test_a_worker_that_takes_all_there_is_stays_on_watch() -> None:
    """However often it is told of jobs."""
    watch_of = WatchOfIdleWorker()
    watch_of.act(is_taken=True)
    watch_of.act()
    watch_of.outlook.waits_for_news = False
    watch_of.outlook.waited_at = time.monotonic() - watch.STUCK_SECONDS / 2
    assert watch_of.seconds_to_next() > 0
    watch_of.outlook.waited_at = time.monotonic()
    watch_of.outlook.claimed_at = time.monotonic()
    assert watch_of.seconds_to_next() > 0
    watch_of.outlook.waited_at = 0.0
    assert watch_of.seconds_to_next() <= 0


def test_a_worker_with_room_of_one_kind_only_leaves_the_watch() -> None:
    """Another one may have room of the other kind, too."""
    watch_of = WatchOfIdleWorker()
    watch_of.act(is_taken=True)
    watch_of.act()
    watch_of.outlook.waited_at = time.monotonic()
    watch_of.outlook.waits_for_news = watch_of.outlook.has_room = False
    assert 0 < watch_of.seconds_to_next() < 2 * watch.FULL_SECONDS
    watch_of.outlook.waited_at -= watch.FULL_SECONDS
    watch_of.act()
    assert not watch_of.duty.hears_of_jobs
    assert watch_of.seconds_to_next() == math.inf, "nor does it ask for it"


def test_a_worker_that_leaves_the_watch_as_soon_as_it_has_it_hears_orders_again() -> None:
    """While it was parked it heard nothing, and somebody asked it to claim nothing."""
    watch_of = WatchOfIdleWorker()
    watch_of.act(is_taken=False)
    assert watch_of.act() == len(watch.ORDERS), "it hears nothing from now on"
    watch_of.act(is_taken=True)
    watch_of.outlook.waits_for_news = watch_of.outlook.has_room = False
    assert watch_of.act() == 1, "it leaves the watch"
    assert watch_of.seconds_to_next() <= 0
    assert watch_of.act() == len(watch.ORDERS)
    assert watch_of.seconds_to_next() == math.inf
    assert watch_of.orders.due_at(0.0) == 0, "and it asks for those that it has missed"


def test_a_worker_looks_when_it_begins_to_hear_of_jobs() -> None:
    """Its flag may be set already, if its row was locked when it was to be cleared."""
    watch_of = WatchOfIdleWorker()
    watch_of.act(is_taken=True)
    watch_of.look.take_over.assert_not_called()
    watch_of.act()
    watch_of.look.take_over.assert_called_once_with()


# A model of all of them


@pytest.mark.parametrize("seed", range(40))
def test_no_job_lies_while_a_worker_has_nothing_to_do(seed: int) -> None:
    """Whatever happens in whatever order, and with one of them frozen that is not on watch.

    Others act between what a thread decides, what the server does, and what the thread learns.
    """
    chance = random.Random(seed)
    for _ in range(6):
        model = Model(chance)
        for _ in range(12):
            model.go_on(30)
            model.settle()
            idle = [w for w in model.workers if not (w.held or w.is_frozen)]
            assert not (model.ready and idle)
            # A second later those that have something to do have asked again.
            for worker in model.workers:
                worker.may_take = True
            model.settle()
            with_room = [w for w in model.workers if w.held < w.room and not w.is_frozen]
            assert not (model.ready and with_room)
            bound = [w for w in model.workers if not (w.is_frozen or w.is_partial)]
            assert len([w for w in bound if w.listens == EVERYTHING]) <= 1
