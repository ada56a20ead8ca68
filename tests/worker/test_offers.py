"""What a worker does between an offer and the moment when its pump takes it over.

The pump may wait for the interpreter's lock meanwhile: its last note of what it does is old.
"""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest

from django_pgjobs.worker.claiming.plan import Listing
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep.duties import Duties
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.listening import BUSY_SECONDS, Listening
from django_pgjobs.worker.upkeep.look import BUSY_LOOK_SECONDS
from django_pgjobs.worker.upkeep.orders import Orders
from django_pgjobs.worker.upkeep.watch import STUCK_SECONDS
from tests.worker.planning import Knowing, ignore, pump_of
from tests.worker.support import NEVER, make_options

MINUTES = 300.0


class IdleWorker:
    """The pump, which has waited for minutes, and the duties of a worker that hears of jobs."""

    def __init__(self) -> None:
        state = WorkerState(make_options(poll_interval=NEVER), "test:1", worker_id=7)
        self.pump: Pump = pump_of(Knowing(poll_interval=NEVER), state=state)
        self.pump.outlook.note_dry()
        self.pump.outlook.waited_at -= MINUTES
        own: Any = mock.Mock(listens=True, schema="public")
        errands, refusals = self.pump._errands, self.pump._refusals
        orders = Orders(state, ignore)
        duties = Duties(state, self.pump, own, refusals, errands, ignore, ignore, orders)
        self.watch, self.look = duties.watch, duties.look
        [self.listening] = [duty for duty in duties if isinstance(duty, Listening)]
        answer(self.watch, (True,))
        answer(self.watch)
        answer(self.listening, (7,))
        self.look.rest()
        self.look._looked_at = time.monotonic() - MINUTES
        assert self.watch.hears_of_jobs and self.listening.is_said


def answer(duty: Duty, *rows: tuple[Any, ...]) -> None:
    """Do what is due, and let the server answer the first statement with these rows."""
    turn = Turn(7)
    duty.plan(turn)
    turn.receive([list(rows), *([] for _ in turn.sends[1:])])


@pytest.fixture
def idle() -> IdleWorker:
    return IdleWorker()


@pytest.mark.parametrize("offer", ["default", Listing(groups=frozenset())])
def test_a_worker_is_not_busy_since_before_it_was_told(
    idle: IdleWorker, offer: Listing | str
) -> None:
    """It would leave the watch to others and say that it listens no more, before it claims."""
    idle.pump.offer(offer)
    now = time.monotonic()
    assert not idle.pump.outlook.waits_for_news
    assert 0 < idle.watch.due_at(now) - now <= STUCK_SECONDS
    assert 0 < idle.listening.due_at(now) - now <= BUSY_SECONDS
    assert 0 < idle.look.due_at(now) - now <= BUSY_LOOK_SECONDS


def test_offers_that_its_pump_leaves_alone_do_not_keep_it_on_watch(idle: IdleWorker) -> None:
    idle.pump.offer("default")
    idle.pump.outlook.waited_at -= STUCK_SECONDS
    idle.pump.offer("other")
    now = time.monotonic()
    assert idle.watch.due_at(now) <= now
    assert idle.listening.due_at(now) <= now
