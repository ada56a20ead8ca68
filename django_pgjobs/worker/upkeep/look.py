"""The look for jobs: promotes those that are due, and lists where some may be claimed.

A look that leads to nothing is followed by another after 10, 20, 40 ... milliseconds, up to the
poll interval: a transaction that was open at the last look is met after about as long again as it
lasted. A find lets the gaps begin anew. While every new job is notified, only jobs without keys do
that are still there after a claim: somebody may have locked them for a moment. Looks that have
become slow are made so rarely that they take a tenth of the time. A worker that leaves new jobs to
the one on watch looks at the poll interval, whatever it finds, and once more after it has claimed
jobs while it knows of some with keys.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from django_pgjobs.queries import claims, jobs
from django_pgjobs.queries.claims import Group
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.worker.claiming.pace import Pace
from django_pgjobs.worker.claiming.plan import Listing
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.missing_limits import MissingLimits

FIRST_GAP_SECONDS = 0.01
# A worker that found nothing for so long sets its flag (`listening`).
LISTEN_AFTER_SECONDS = 0.15
# How long after tokens came, which the pump takes by itself, the look asks for the next.
TOKEN_LOOK_SECONDS = 0.02
# At least so far apart are looks after claims that found jobs, while every new job is notified:
# what such a look is for is rare then (jobs with keys, due times, rows that somebody had locked).
# As long is the first gap after one that finds what claims have left.
APART_SECONDS = 0.025
# How often a worker looks if its pump knows where jobs are, or has room of one kind only.
BUSY_LOOK_SECONDS = 1.0
# After a look of d seconds there is none for this many times d.
PAUSE_FACTOR = 9
PROMOTE_BATCH = 1_000
# Each gap is shortened by chance, to this part of it at least: workers that were started together,
# or that one burst has woken, would look together for ever.
LEAST_PART = 0.8
# A drain ends when so many looks in a row have found jobs of which none was claimed meanwhile.
VAIN_LOOKS = 3


@dataclass
class LookNotes:
    """What one look finds, and what it knew before."""

    # When it began, and when the pump had last claimed jobs; was it idle, and nothing held?
    began: float
    claimed_at: float
    is_empty: bool
    promoted: int = 0
    # In how many seconds.
    next_due: float | None = None
    token_waits: dict[Group, float] = field(default_factory=dict)

    def note_promotion(self, rows: Rows) -> None:
        """Note how many jobs may run now, and when the next one may."""
        [(promoted, self.next_due, _)] = rows
        self.promoted += promoted

    def note_token_waits(self, rows: Rows) -> None:
        """Note in which groups jobs wait for tokens, and how long."""
        self.token_waits = {Group(*names): seconds for *names, seconds in rows}

    def token_wait(self, listing: Listing) -> float | None:
        """Return how long the jobs listed wait for tokens, None if none of them does."""
        waits = self.token_waits.items()
        return min((seconds for group, seconds in waits if group in listing.groups), default=None)


class Look(Duty):
    """Finds out where jobs are, and when the next look is due."""

    def __init__(
        self,
        state: WorkerState,
        pump: Pump,
        connection: OwnConnection,
        refusals: Refusals,
        *,
        is_settled: Callable[[], bool],
        is_told: Callable[[], bool],
        rests: Callable[[], bool],
        on_drained: Callable[[str, float], None],
    ) -> None:
        self._state = state
        self._pump = pump
        self._outlook = pump.outlook
        self._connection = connection
        self._refusals = refusals
        self._is_settled = is_settled
        # Does every enqueue notify this worker, or another one that wakes it if need be?
        self._is_told = is_told
        # Does another see to new jobs? Two that look for the same would take them one by one.
        self._rests = rests
        # Takes why a drain may end, and when the looks that say so began.
        self._on_drained = on_drained
        self._due = 0.0
        self._gap = FIRST_GAP_SECONDS
        self._looked_at = -math.inf
        self._pace = Pace(PAUSE_FACTOR)
        # Has it heard of jobs, or has the pump claimed some, since the last look?
        self._has_news = False
        # When jobs that wait for tokens have enough of them; then a busy worker looks, too.
        self._tokens_at = math.inf
        self._missing_limits = MissingLimits(state.name)
        # When the pump had last claimed jobs at the last look, and whether that found groups.
        self._claimed_at = -math.inf
        self._knows_of_keys = False
        # When the last looks of a drain began that led to nothing.
        self._vain: deque[float] = deque(maxlen=VAIN_LOOKS)
        # Was nothing held when the last look began?
        self._was_empty = False

    # What others say

    def note_news(self) -> None:
        """Look at once if nothing is known, and often after that unless all news is told."""
        self._begin_gaps()
        self._due = 0.0
        self._has_news = True

    def look_by(self, time: float) -> None:
        """Look at *time* at the latest."""
        self._due = min(self._due, time)

    def rest(self) -> None:
        """Look at the poll interval from now on: another worker is on the watch."""
        self._gap = self._state.options.poll_interval

    def take_over(self) -> None:
        """Look at once, and soon again: notifications reach it, but not of what began before."""
        self._gap = min(self._gap, LISTEN_AFTER_SECONDS)
        self._due = 0.0

    def begin_anew(self) -> None:
        self._gap = FIRST_GAP_SECONDS
        self._due = 0.0

    def _begin_gaps(self) -> None:
        if not self._is_told():
            self._gap = FIRST_GAP_SECONDS

    @property
    def is_quiet(self) -> bool:
        """Has nothing been found for long enough to ask for notifications?"""
        return self._gap >= min(LISTEN_AFTER_SECONDS, self._state.options.poll_interval)

    # The duty

    def due_at(self, now: float) -> float:
        if not self._outlook.wants_jobs:
            return math.inf
        if not self._outlook.waits_for_news:
            due = max(self._looked_at, self._outlook.waited_at) + BUSY_LOOK_SECONDS
            due = min(due, self._tokens_at + TOKEN_LOOK_SECONDS)
        elif self._may_end_drain:
            due = 0.0
        elif self._outlook.claimed_at != self._claimed_at and self._goes_on:
            due = self._looked_at + APART_SECONDS if self._is_told() else 0.0
        else:
            due = self._due
        return max(due, self._pace.open_at)

    def plan(self, turn: Turn) -> None:
        began, claimed_at = time.monotonic(), self._outlook.claimed_at
        found = LookNotes(began, claimed_at, is_empty=self._is_empty)
        passed_over = self._refusals.passed_over()
        turn.begin(lambda error: self._promote_apart(found)).add(
            partial(jobs.send_promotion, max_jobs=PROMOTE_BATCH, passed_over=passed_over),
            found.note_promotion,
        )
        if self._knows_of_keys:
            turn.add(claims.send_token_wait, found.note_token_waits)
        self._missing_limits.plan(turn, knows_of_keys=self._knows_of_keys)
        with_lowest = self._state.options.ageing is not None
        turn.add(
            partial(claims.send_lane_listing, with_lowest=with_lowest),
            lambda rows: self._note(found, rows, turn.elapsed),
        )

    def _note(self, found: LookNotes, rows: Rows, seconds: float) -> None:
        """Offer the places that were found, and decide when to look next."""
        listing = Listing.of(map(claims.ReadyPlace._make, rows), self._state.options)
        now = self._looked_at = time.monotonic()
        # The server counted from here on; the answer may have come late.
        asked_at = now - seconds
        self._pace.note(seconds, now)
        if found.claimed_at != self._claimed_at or found.promoted:
            self._begin_gaps()
            self._has_news = True
        is_unlimited = any(lane.queue_name not in listing.limited for lane in listing.lanes)
        if self._has_news and is_unlimited and not self._rests():
            # Claims may pass their jobs over: nobody tells when a row is unlocked.
            self._gap = min(self._gap, APART_SECONDS)
        self._has_news = False
        self._due = now if found.promoted else now + self._gap * random.uniform(LEAST_PART, 1.0)
        self._gap = min(2 * self._gap, self._state.options.poll_interval)
        token_wait = found.token_wait(listing)
        if token_wait is not None:
            listing = replace(listing, tokens_at=asked_at + token_wait + 0.001)
        self._tokens_at = listing.tokens_at
        self.look_by(self._tokens_at + TOKEN_LOOK_SECONDS)
        if found.next_due is not None:
            self.look_by(asked_at + found.next_due + 0.001)
        if self._state.options.drain:
            self._check_drain(found, listing)
        self._claimed_at, self._was_empty = found.claimed_at, found.is_empty
        self._knows_of_keys = bool(listing.groups)
        if listing:
            self._pump.offer(listing)

    @property
    def _goes_on(self) -> bool:
        """Is it to look at what is left of jobs that the pump has claimed?

        Of those with keys even if another worker sees to new jobs: that one may be frozen, and what
        waits for a key or for tokens would move on by one step at each poll.
        """
        return not self._rests() or self._knows_of_keys

    @property
    def _may_end_drain(self) -> bool:
        return self._state.options.drain and not self._was_empty and self._is_empty

    @property
    def _is_empty(self) -> bool:
        """Is nothing held, and nothing under way that might be?"""
        outlook = self._outlook
        is_idle = outlook.is_idle and not (outlook.is_releasing or outlook.is_settling)
        return is_idle and not self._state.held and self._is_settled()

    def _check_drain(self, found: LookNotes, listing: Listing) -> None:
        # What the same round trip has found is for the pump to count first.
        is_empty = found.is_empty and not found.promoted
        is_over = is_empty and not self._outlook.is_settling
        if is_over and not listing:
            self._on_drained("nothing is left to run", found.began)
        has_waited = found.claimed_at == self._claimed_at and self._tokens_at == math.inf
        if is_over and has_waited:
            self._vain.append(found.began)
        else:
            self._vain.clear()
        if len(self._vain) == VAIN_LOOKS:
            self._on_drained("nothing is left that may run now", self._vain[0])
        if is_empty and self._tokens_at == math.inf:
            # While a long job ran, the gaps have become those of the poll interval.
            self.look_by(self._looked_at + FIRST_GAP_SECONDS * 2 ** len(self._vain))

    def _promote_apart(self, found: LookNotes) -> None:
        """Promote fewer jobs, and pass over those that the server refuses to change."""

        def send(cursor: Cursor, max_jobs: int, passed_over: list[int], acts: bool) -> None:
            jobs.send_promotion(cursor, max_jobs=max_jobs, passed_over=passed_over, acts=acts)

        def promote(size: int, passed_over: list[int]) -> Sequence[int]:
            statement = partial(send, max_jobs=size, passed_over=passed_over, acts=True)
            [rows] = self._connection.round_trip([statement])
            found.note_promotion(rows)
            return range(rows[0][0])

        def find(passed_over: list[int]) -> dict[int, str]:
            statement = partial(send, max_jobs=1, passed_over=passed_over, acts=False)
            [[(_, _, ids)]] = self._connection.round_trip([statement])
            return dict.fromkeys(ids, "")

        pages = self._refusals.in_pages(self._connection, promote, size=PROMOTE_BATCH, find=find)
        for _ in pages:
            pass
