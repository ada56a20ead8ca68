"""The watch for new jobs: of the idle workers that serve the same ones, one is notified.

PostgreSQL signals every session that listens at each notification, whatever its channel, and each
worker that is woken claims and looks. So of all workers of a *group* (same backends, queues and
tasks) only the one that has the *watch*, an advisory lock, hears of new jobs. The others *park*:
they wait for the lock in the server, and hear nothing. A worker that gets more jobs than it takes,
has one that runs for long, or cannot claim for some reason, leaves the watch. The server gives it
to one that is parked; that one hears from then on, sets its flag, and looks for what was there
before. So a batch of jobs wakes one worker after the other, until they suffice.

A worker that holds jobs has more to do than to wait: it asks for the watch now and then, and
whenever somebody leaves it. If its queues have shares of its slots and one of them is used up, it
cannot stand in for others, nor they for it: then it hears of new jobs without the watch.

While somebody is parked the watch is taken, and what is committed while it changes hands is found
by the look. If its holder is frozen the poll finds the jobs, until the server ends its session.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import psycopg

from django_pgjobs.declaring.registry import list_task_paths
from django_pgjobs.queries import watch
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.notifications import (
    EVERYTHING,
    JOBS_CHANNEL,
    ORDERS,
    send_subscription,
)
from django_pgjobs.worker.claiming.outlook import Outlook
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.look import Look
from django_pgjobs.worker.upkeep.orders import Orders

NOTHING: frozenset[str] = frozenset()
# Below PostgreSQL's deadlock_timeout, after which a wait may be logged.
PARK_SECONDS = 0.9
# It is not worth while to park for less.
LEAST_PARK_SECONDS = 0.02
# After so long without jobs nothing that their end brings about is under way any more.
SETTLE_SECONDS = 0.02
# A worker that has had no room for more jobs for so long leaves the watch, ...
FULL_SECONDS = 0.02
# ... and so does one that has found jobs, and known of more, for so long though it has room, ...
BUSY_SECONDS = 0.1
# ... and one whose pump has found nothing for so long where jobs may be: something holds it up.
STUCK_SECONDS = 1.0
# ... and one with a job that takes longer, if it took the watch when it had none: another process
# may have nothing to do.
LONG_SECONDS = 0.1
# How long a worker with jobs leaves the watch to those that have none and are about to park.
YIELD_SECONDS = 0.05
# How often a worker that has more to do than to wait asks for the watch.
AGAIN_SECONDS = 1.0
# How long a worker goes without the watch after the server refused it.
REFUSED_SECONDS = 10.0
# The server ends the session of a worker on watch after so long without a statement, or after
# so many poll intervals: at each of them it looks.
SILENT_SECONDS = 60.0
SILENT_POLLS = 3


class WatchStep(Enum):
    """Steps of a worker that takes, leaves or does without the watch."""

    LEAVE = "leave"
    TAKE = "take"
    PARK = "park"
    HEAR_NOTHING = "hear nothing"
    HEAR_ORDERS = "hear orders"
    HEAR_EVERYTHING = "hear everything"


CHANNELS = {
    WatchStep.HEAR_NOTHING: NOTHING,
    WatchStep.HEAR_ORDERS: ORDERS,
    WatchStep.HEAR_EVERYTHING: EVERYTHING,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchFacts:
    """What a worker knows that decides about its next step."""

    # Does it have the watch, and which channels does it hear?
    is_on_watch: bool
    hears: frozenset[str]
    # Does it want jobs, and knows of none?
    waits: bool
    # Are there, or may there be, jobs that another worker would begin sooner?
    is_busy: bool
    # Are there jobs that others may take and it may not?
    is_partial: bool
    # May it ask for the watch again?
    may_take: bool
    # Has it nothing else to do?
    may_park: bool


def next_step(facts: WatchFacts) -> WatchStep | None:
    """Return what a worker does next about the watch, None if nothing."""
    if facts.is_on_watch:
        if facts.is_busy or facts.is_partial:
            return WatchStep.LEAVE
        return _hear(WatchStep.HEAR_EVERYTHING, facts)
    if facts.is_partial:
        return _hear(WatchStep.HEAR_EVERYTHING, facts)
    if not facts.waits:
        return _hear(WatchStep.HEAR_ORDERS, facts)
    if facts.may_take:
        return WatchStep.TAKE
    if facts.may_park:
        return _hear(WatchStep.HEAR_NOTHING, facts) or WatchStep.PARK
    return _hear(WatchStep.HEAR_ORDERS, facts)


def _hear(step: WatchStep, facts: WatchFacts) -> WatchStep | None:
    return None if facts.hears == CHANNELS[step] else step


class Watch(Duty):
    """Takes the watch, parks or leaves it."""

    travels_alone = True

    def __init__(
        self,
        state: WorkerState,
        outlook: Outlook,
        connection: OwnConnection,
        look: Look,
        *,
        others: Sequence[Duty],
        orders: Orders,
        on_hearing: Callable[[], None],
    ) -> None:
        self._state = state
        self._outlook = outlook
        self._connection = connection
        self._look = look
        self._others = others
        self._orders = orders
        self._on_hearing = on_hearing
        # What it has in common with those that serve the same jobs.
        self._group = *state.options.serving, list_task_paths()
        self._is_on_watch = False
        self._hears = ORDERS
        # Did another worker have the watch when it asked for it? Did it have jobs when it got it?
        self._is_denied = False
        self._began_with_jobs = False
        # When it may ask for the watch again, and when again after the server refused it.
        self._take_at = 0.0
        self._refused_until = 0.0
        # When the worker was last seen with jobs.
        self._held_at = 0.0

    # What others say and ask

    @property
    def hears_of_jobs(self) -> bool:
        """Does a notification of new jobs reach this worker?"""
        return JOBS_CHANNEL in self._hears and self._connection.listens

    @property
    def rests(self) -> bool:
        """Does another worker see to new jobs?"""
        return self._is_denied and not self.hears_of_jobs

    def observe(self, now: float) -> None:
        """See whether the worker has jobs."""
        if self._state.held:
            self._held_at = now
        else:
            self._began_with_jobs = False

    def note_left(self) -> None:
        """Ask for the watch soon: somebody has left it, and this worker does not park."""
        if self._state.held:
            self._take_at = min(self._take_at, time.monotonic() + YIELD_SECONDS)

    def begin_anew(self) -> None:
        self._is_on_watch = self._is_denied = False
        self._hears = ORDERS
        self._take_at = self._refused_until = 0.0

    # The duty

    def due_at(self, now: float) -> float:
        if not self._connection.listens:
            return math.inf
        step = next_step(self._facts(now))
        if step is WatchStep.PARK:
            other = self._next_other(now)
            return now if other - now > LEAST_PARK_SECONDS else other + LEAST_PARK_SECONDS
        if step is not None:
            return now
        times = [self._take_at, self._refused_until]
        if not self._state.held:
            times.append(self._held_at + SETTLE_SECONDS)
        if self._is_on_watch:
            times = [self._long_at()]
            if not self._outlook.waits_for_news:
                # While a claim is under way.
                times.append(now + max(FULL_SECONDS, (now - self._outlook.waited_at) / 2))
        elif not self._outlook.waits_for_news:
            times = []
        return min((time for time in times if time > now), default=math.inf)

    def plan(self, turn: Turn) -> None:
        now = time.monotonic()
        step = next_step(self._facts(now))
        part = turn.begin(self._note_refused)
        if step in CHANNELS:
            channels = CHANNELS[step]
            for name in sorted(self._hears ^ channels):
                hears = name in channels
                part.add(
                    partial(send_subscription, channel=name, hears=hears),
                    lambda rows: self._note_hears(channels),
                )
        elif step is WatchStep.LEAVE:
            if JOBS_CHANNEL in self._hears:
                part.add(_send_deafness, lambda rows: None)
            part.add(watch.send_leave, self._note_left)
        elif step is not None:
            seconds = 0.0
            if step is WatchStep.PARK:
                seconds = max(0.0, min(PARK_SECONDS, self._next_other(now) - now))
            send = partial(
                watch.send_take,
                watch=self._key,
                seconds=seconds,
                silent_seconds=max(
                    SILENT_SECONDS, SILENT_POLLS * self._state.options.poll_interval
                ),
            )
            part.add(send, self._note_taken)
            # It has heard nothing while it parked.
            self._orders.plan(turn)

    @functools.cached_property
    def _key(self) -> int:
        return watch.key_of(self._connection.schema, *self._group)

    def _facts(self, now: float) -> WatchFacts:
        outlook = self._outlook
        is_empty = not self._state.held and now >= self._held_at + SETTLE_SECONDS
        return WatchFacts(
            is_on_watch=self._is_on_watch,
            hears=self._hears,
            waits=outlook.waits_for_news,
            is_busy=self._is_busy(now),
            is_partial=self._state.options.drain
            or outlook.has_full_queue
            or now < self._refused_until,
            may_take=now >= self._take_at,
            may_park=is_empty,
        )

    def _is_busy(self, now: float) -> bool:
        outlook = self._outlook
        if now >= self._long_at():
            return True
        if outlook.waits_for_news:
            return False
        seconds = now - outlook.waited_at
        if not outlook.has_room:
            return seconds >= FULL_SECONDS
        has_found = outlook.claimed_at > outlook.waited_at
        return seconds >= (BUSY_SECONDS if has_found else STUCK_SECONDS)

    def _long_at(self) -> float:
        """Return when the oldest job has run for so long that others had better be on watch."""
        if self._began_with_jobs:
            return math.inf
        oldest = list(self._state.held.values())[:1]
        return oldest[0].claimed_at + LONG_SECONDS if oldest else math.inf

    def _next_other(self, now: float) -> float:
        return min(duty.due_at(now) for duty in self._others)

    # What came back

    def _note_hears(self, channels: frozenset[str]) -> None:
        if self._hears == channels:
            return
        if self._hears == NOTHING:
            # It may have missed that somebody has left the watch, or cancelled a job, or more.
            self._take_at = 0.0
            self._orders.note_missed()
            self._on_hearing()
        self._hears = channels
        if channels == EVERYTHING:
            self._look.take_over()

    def _note_taken(self, rows: Rows) -> None:
        [(self._is_on_watch,)] = rows
        self._is_denied = not self._is_on_watch
        self._began_with_jobs = bool(self._state.held)
        if self._is_denied:
            self._look.rest()
        self._take_at = time.monotonic() + AGAIN_SECONDS

    def _note_left(self, rows: Rows) -> None:
        # One that left as soon as it had it hears nothing yet.
        self._is_on_watch, self._hears = False, self._hears - {JOBS_CHANNEL}
        self._take_at = time.monotonic() + YIELD_SECONDS

    def _note_refused(self, error: psycopg.Error) -> None:
        # A lock that was got outlives the error of its statement: it is to be left.
        self._is_on_watch, self._is_denied = True, False
        self._refused_until = time.monotonic() + REFUSED_SECONDS


def _send_deafness(cursor: Cursor) -> None:
    send_subscription(cursor, JOBS_CHANNEL, hears=False)
