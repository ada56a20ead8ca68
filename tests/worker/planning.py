"""Claims that are planned and never sent, and what came of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries.claims import ClaimedRow, Group, Lane, ReadyPlace
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.claimer import Claimer
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.demand import Demand
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.claiming.places import Places
from django_pgjobs.worker.claiming.plan import Claim, Listing, Plan
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.running.async_slots import AsyncSlots
from django_pgjobs.worker.running.capacity import SlotCallbacks
from django_pgjobs.worker.running.slots import Slots
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from tests.worker.support import make_attempt_of, make_options


def plain(*lanes: Lane, **columns: Any) -> list[ReadyPlace]:
    """Return what a look lists of lanes without keys."""
    given = {"lowest": 0, "boost": 0, "is_limited": False} | columns
    return [
        ReadyPlace(lane.backend, lane.queue_name, None, lane.is_async, **given) for lane in lanes
    ]


def keyed(*groups: Group, **columns: Any) -> list[ReadyPlace]:
    """Return what a look lists of jobs with keys."""
    given = {"boost": 0, "is_limited": False} | columns
    return [ReadyPlace(*group, lowest=group.urgency, **given) for group in groups]


class Knowing:
    """The places that a worker with these options knows of; its claims are never sent."""

    def __init__(self, *found: ReadyPlace, **options: Any) -> None:
        self.options = make_options(**options)
        self.places = Places(self.options)
        if found:
            self.find(*found)

    def find(self, *found: ReadyPlace) -> None:
        """Let a look find these places."""
        self.places.note_listing(Listing.of(found, self.options))

    def plan(
        self, wanted: int = 0, rooms: tuple[int, int] | None = None, **given: Any
    ) -> Plan | None:
        """Return the next claim of so many jobs, None if there is none to make now.

        Usually of as many as there are *rooms*, else of one.
        """
        wanted = wanted or sum(rooms or (1,))
        now, by_kind = time.monotonic(), Rooms(*(rooms or (wanted, wanted)))
        usual = {"wanted": wanted, "free": Rooms(4, 4), "caps": {}}
        usual["waits"] = self.places.waits(now, by_kind)
        return self.places.plan(by_kind, now, **(usual | given))

    def claim(
        self,
        *rows: ClaimedRow,
        wanted: int = 0,
        rooms: tuple[int, int] | None = None,
        held: bool = True,
        seconds: float = 0.0,
        ending: Iterable[ClaimedRow] = (),
    ) -> Plan:
        """Let the next claim come back with these rows, and return what it was."""
        plan = self.plan(wanted, rooms, ending=ending)
        assert plan is not None, "there is nothing to claim"
        self.places.note_claimed(Claim(plan, list(rows), held=held, seconds=seconds))
        return plan


def ignore(*_: Any) -> None:
    """Do nothing; for callbacks that nobody calls here."""


class Claiming:
    """The demand of slots that were never started, so that the test sets what they do."""

    def __init__(self, **options: Any) -> None:
        self.options = make_options(**({"concurrency": 4} | options))
        self.state = WorkerState(self.options, "test:1")
        callbacks = SlotCallbacks(ignore, ignore, ignore, ignore)
        self.slots = Slots(self.options, callbacks)
        self.async_slots = AsyncSlots(self.options, callbacks)
        self.demand = Demand(self.state, self.slots, self.async_slots, lambda: False)

    def run(self, count: int, *, seconds_ago: float = 0.0) -> None:
        """Let that many slots have begun a job *seconds_ago*."""
        for number in range(count):
            attempt = make_attempt_of(number + 1)
            attempt.started_at = time.monotonic() - seconds_ago
            self.slots.note_begin(attempt)
            self.slots.begun_at = attempt.started_at

    def buffer(self, count: int) -> list[Attempt]:
        """Let that many claimed jobs wait for a slot."""
        waiting = [make_attempt_of(100 + number) for number in range(count)]
        self.slots.buffer.extend(waiting)
        return waiting


Make = Callable[..., Claiming]


def pump_of(
    knowing: Knowing,
    *,
    state: WorkerState | None = None,
    connection: Any = None,
    completer: Completer | None = None,
    dispatch: Callable[[list[Attempt]], None] = ignore,
) -> Pump:
    """Return a pump with room for one job of each kind, whose turns nobody takes."""
    state = state or WorkerState(knowing.options, "test:1")
    demand = mock.Mock(free=Rooms(1, 1))
    given = {"rooms": Rooms(1, 1), "in_all": 1, "buffered": 0, "caps": {}, "is_low": True}
    demand.configure_mock(**{f"{name}.return_value": answer for name, answer in given.items()})
    connection = connection or mock.Mock(distance=0.0)
    refusals = Refusals()
    claimer = Claimer(state, connection, refusals, detailed_paths=[], wants_details=lambda: False)
    return Pump(
        state,
        connection,
        demand,
        knowing.places,
        claimer,
        refusals,
        Completer(state, Tally(), ignore) if completer is None else completer,
        Errands(),
        dispatch=dispatch,
        take_back=lambda _: [],
        on_interrupted=ignore,
        on_limit=ignore,
        on_crash=ignore,
    )
