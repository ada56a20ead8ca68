"""The watch for new jobs: of the workers that serve the same ones, two are notified.

PostgreSQL signals every session that listens at each notification, whatever its channel, so each
listener costs every enqueue. Of all idle workers of a *group* (same backends, queues and tasks)
only those that hold a slot of its *watch*, an advisory lock, hear of new jobs. The others *park*:
they wait for a slot in the server, and hear nothing. Who has no room for more jobs leaves the
watch. The server gives the slot to one that is parked; that one hears from then on, and looks once
for what was there before. So a batch of jobs wakes one worker after the other, until they suffice.

A worker that holds jobs has more to do than to wait: it asks for a slot now and then, and whenever
somebody leaves the watch. If its queues have shares of its slots and one of them is used up, it
cannot stand in for others, nor they for it: then it hears of new jobs without a slot.

While somebody is parked all slots are held. What is committed while a slot changes hands is found
by the look. A holder that is frozen is not replaced: the second one acts as soon as the first does
not, and if both are frozen the poll finds the jobs.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import psycopg

from django_pgjobs.queries import watch
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.notifications import (
    EVERYTHING,
    JOBS_CHANNEL,
    ORDERS,
    send_subscription,
)
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.look import Look

NOTHING: frozenset[str] = frozenset()
# Below PostgreSQL's deadlock_timeout, after which a wait may be logged.
PARK_SECONDS = 0.9
# It is not worth while to park for less.
LEAST_PARK_SECONDS = 0.02
# After so long without jobs nothing that their end brings about is under way any more.
SETTLE_SECONDS = 0.02
# A worker that has had no room for more jobs for so long leaves the watch, ...
FULL_SECONDS = 0.02
# ... and one that found jobs and has known of more for so long, though it has room.
BUSY_SECONDS = 0.1
# How often a worker asks for a slot that has other things to do than to wait.
AGAIN_SECONDS = 1.0
# How long a worker goes without a slot after the server refused one.
REFUSED_SECONDS = 10.0


class Step(Enum):
    """What is to be done about the watch."""

    LEAVE = "leave"
    TAKE = "take"
    PARK = "park"
    HEAR_NOTHING = "hear nothing"
    HEAR_ORDERS = "hear orders"
    HEAR_EVERYTHING = "hear everything"


CHANNELS = {
    Step.HEAR_NOTHING: NOTHING,
    Step.HEAR_ORDERS: ORDERS,
    Step.HEAR_EVERYTHING: EVERYTHING,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What a worker knows that decides about its next step."""

    # Does it have a slot, and which channels does it hear?
    is_on_watch: bool
    hears: frozenset[str]
    # Does it want jobs, and knows of none?
    waits: bool
    # Has it found jobs since it waited last, and waits no more?
    is_busy: bool
    # Are there jobs that others may take and it may not?
    is_partial: bool
    # May it ask for a slot again?
    may_take: bool
    # Has it nothing else to do?
    may_park: bool


def next_step(known: Known) -> Step | None:
    """Return what a worker does next about the watch, None if nothing."""
    if known.is_on_watch:
        if known.is_busy or known.is_partial:
            return Step.LEAVE
        return _hear(Step.HEAR_EVERYTHING, known)
    if not known.waits:
        return _hear(Step.HEAR_ORDERS, known)
    if known.is_partial:
        return _hear(Step.HEAR_EVERYTHING, known)
    if known.may_take:
        return Step.TAKE
    if known.may_park:
        return _hear(Step.HEAR_NOTHING, known) or Step.PARK
    return _hear(Step.HEAR_ORDERS, known)


def _hear(step: Step, known: Known) -> Step | None:
    return None if known.hears == CHANNELS[step] else step


class Watch(Duty):
    """Takes a slot, parks or leaves the watch."""

    travels_alone = True

    def __init__(
        self,
        state: WorkerState,
        pump: Pump,
        connection: OwnConnection,
        look: Look,
        *,
        others: Sequence[Duty],
        is_told: Callable[[], bool],
        first_slot: Callable[[], int],
        on_orders: Callable[[], None],
    ) -> None:
        self._state = state
        self._pump = pump
        self._connection = connection
        self._look = look
        self._others = others
        self._is_told = is_told
        self._first_slot = first_slot
        self._on_orders = on_orders
        self._slot: int | None = None
        self._hears = ORDERS
        # Were all slots taken when it asked for one?
        self._is_denied = False
        # When it may ask for a slot again, and when again after the server refused one.
        self._take_at = 0.0
        self._refused_until = 0.0
        # As of when the pump waited for news last: when that was, how many jobs it had claimed;
        # and when jobs were held last.
        self._waited_at = 0.0
        self._claimed = 0
        self._held_at = 0.0

    # What others say and ask

    @property
    def is_second(self) -> bool:
        """Was another one quicker the last time, and has it done nothing wrong since?"""
        return bool(self._slot) and self._look.has_lost

    def observe(self, now: float) -> None:
        """See what the pump is at, and let the look know what it may rely on."""
        self._look.is_told = (
            self._slot is not None and self._hears == EVERYTHING and self._is_told()
        )
        self._look.rests = self._is_denied and self._hears != EVERYTHING
        if self._pump.waits_for_news:
            self._waited_at, self._claimed = now, self._pump.claimed
        if self._state.held:
            self._held_at = now

    def note_left(self) -> None:
        """Ask for a slot at once: somebody has left the watch, and this worker does not park."""
        if self._state.held:
            self._take_at = 0.0

    def begin_anew(self) -> None:
        self._slot, self._is_denied = None, False
        self._hears = ORDERS
        self._take_at = self._refused_until = 0.0

    # The duty

    def due_at(self, now: float) -> float:
        if not self._connection.listens:
            return math.inf
        step = next_step(self._known(now))
        if step is Step.PARK:
            other = self._next_other(now)
            return now if other - now > LEAST_PARK_SECONDS else other + LEAST_PARK_SECONDS
        if step is not None:
            return now
        if self._slot is not None:
            # While a claim is under way.
            pause = max(FULL_SECONDS, (now - self._waited_at) / 2)
            return math.inf if self._pump.waits_for_news else now + pause
        if not self._pump.waits_for_news:
            return math.inf
        times = (self._take_at, self._held_at + SETTLE_SECONDS, self._refused_until)
        return min((time for time in times if time > now), default=math.inf)

    def plan(self, turn: Turn) -> None:
        now = time.monotonic()
        step = next_step(self._known(now))
        part = turn.begin(self._note_refused)
        if step in CHANNELS:
            channels = CHANNELS[step]
            for name in sorted(self._hears ^ channels):
                hears = name in channels
                part.add(
                    partial(send_subscription, channel=name, hears=hears),
                    lambda rows: self._note_hears(channels),
                )
        elif step is Step.LEAVE:
            part.add(_send_deafness, lambda rows: None)
            part.add(watch.send_leave, self._note_left)
        elif step is not None:
            seconds = 0.0
            if step is Step.PARK:
                seconds = min(PARK_SECONDS, self._next_other(now) - now)
            send = partial(
                watch.send_take,
                worker_id=turn.worker_id,
                first_slot=self._first_slot(),
                # So that those who are parked wait for all of them.
                wanted=random.randrange(watch.SLOTS),
                seconds=max(0.0, seconds),
            )
            part.add(send, self._note_taken)

    def _known(self, now: float) -> Known:
        pump = self._pump
        is_empty = not self._state.held and now >= self._held_at + SETTLE_SECONDS
        return Known(
            is_on_watch=self._slot is not None,
            hears=self._hears,
            waits=pump.waits_for_news,
            is_busy=self._is_busy(now),
            is_partial=self._state.options.drain
            or pump.has_full_queue
            or now < self._refused_until,
            may_take=now >= self._take_at,
            may_park=is_empty,
        )

    def _is_busy(self, now: float) -> bool:
        if not self._pump.wants_jobs:
            return now >= self._waited_at + FULL_SECONDS
        has_found = not self._pump.is_idle and self._pump.claimed != self._claimed
        return has_found and now >= self._waited_at + BUSY_SECONDS

    def _next_other(self, now: float) -> float:
        return min(duty.due_at(now) for duty in self._others)

    # What came back

    def _note_hears(self, channels: frozenset[str]) -> None:
        if self._hears != channels:
            self._hears = channels
            if channels == EVERYTHING:
                self._look.look_by(0.0)

    def _note_taken(self, rows: Rows) -> None:
        [(self._slot, is_asked)] = rows
        self._is_denied = self._slot is None
        if not self._is_denied and self._hears == NOTHING:
            self._look.note_rested()
        self._take_at = time.monotonic() + AGAIN_SECONDS
        if is_asked:
            self._on_orders()

    def _note_left(self, rows: Rows) -> None:
        self._slot, self._hears = None, ORDERS
        self._take_at = 0.0

    def _note_refused(self, error: psycopg.Error) -> None:
        self._slot, self._is_denied = None, False
        self._refused_until = time.monotonic() + REFUSED_SECONDS


def _send_deafness(cursor: Cursor) -> None:
    send_subscription(cursor, JOBS_CHANNEL, hears=False)
