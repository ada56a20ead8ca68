"""The loop of the upkeep: what makes it pause, and that others may wake it meanwhile."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import psycopg
import pytest

from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.upkeep import BEAT_SECONDS, REFUSED_SECONDS, Upkeep
from tests.worker.support import make_attempt_of, make_options


class CountedDuty(Duty):
    """A duty that is due again at once, or never."""

    def __init__(self, due: float = 0.0) -> None:
        self.due = due
        self.count = 0

    def due_at(self, now: float) -> float:
        return self.due

    def plan(self, turn: Turn) -> None:
        self.count += 1
        turn.begin(lambda refusal: None)


class Loop:
    """An upkeep in the test's own thread, which ends it when it sleeps for the third time."""

    def __init__(self, **of_connection: Any) -> None:
        self.naps: list[float | None] = []
        self.connection = mock.Mock(listens=False, is_open=False, **of_connection)
        self.duty = CountedDuty()
        duties: Any = mock.MagicMock()
        duties.__iter__.side_effect = lambda: iter([self.duty])
        errands: Any = mock.Mock(take_look_time=lambda: None)
        errands.wait = self._nap
        self.state = WorkerState(make_options(listen=False), "test:1")
        self.upkeep = Upkeep(
            self.state,
            self.connection,
            mock.MagicMock(),
            errands,
            duties,
            on_orders=lambda: None,
            on_crash=print,
        )

    def _nap(self, timeout: float | None, descriptor: int | None) -> None:
        """Wake at once: somebody calls."""
        self.naps.append(timeout)
        self.upkeep.stop_requested = len(self.naps) == 3


def test_who_is_woken_while_the_database_is_away_waits_on() -> None:
    """The pump wakes it again and again, and each would be a try to connect."""
    away = mock.Mock(side_effect=psycopg.OperationalError("the server is away"))
    loop = Loop(open=away)
    loop.upkeep.run()
    assert (away.call_count, loop.duty.count) == (1, 0)


def test_a_turn_in_which_something_was_refused_is_followed_by_a_pause() -> None:
    """It may be refused again, at once."""
    loop = Loop(round_trip=mock.Mock(side_effect=psycopg.errors.CheckViolation("not this one")))
    loop.upkeep.run()
    assert loop.naps == [REFUSED_SECONDS] * 3
    assert loop.duty.count == 3


@pytest.mark.parametrize("has_jobs", [True, False])
def test_a_worker_with_jobs_sees_to_its_duties_each_second(has_jobs: bool) -> None:
    """Nobody wakes it when a task reports progress, say. Without jobs it sleeps on."""
    loop = Loop()
    loop.duty.due = math.inf
    if has_jobs:
        loop.state.held[1] = make_attempt_of(1)
    loop.upkeep.run()
    longest = [nap for nap in loop.naps if nap is not None]
    assert len(longest) == (3 if has_jobs else 0)
    assert max(longest, default=0.0) <= BEAT_SECONDS
