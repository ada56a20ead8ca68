"""The look for jobs: promotes those that are due, and lists where some may be claimed.

A look that leads to nothing is followed by another after 10, 20, 40 ... milliseconds, up to the
poll interval: a transaction that was open at the last look is met after at most as long again
as it lasted. Looks that have become slow are made so rarely that they take a tenth of the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from django_pgjobs.queries import claims, jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.worker.careful import in_pages
from django_pgjobs.worker.duty import Duty
from django_pgjobs.worker.places import Listing
from django_pgjobs.worker.pump import Pump
from django_pgjobs.worker.refusals import PATIENCE, Refusals
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turn import Rows, Turn

FIRST_GAP_SECONDS = 0.01
# How often a worker looks whose pump knows where jobs are.
BUSY_SECONDS = 1.0
# After a look of d seconds there is none for this many times d.
PAUSE_FACTOR = 9
PROMOTE_BATCH = 1_000
# A drain ends when so many looks in a row have found jobs of which none was claimed meanwhile.
VAIN_LOOKS = 3


@dataclass
class Found:
    """What one look has found."""

    promoted: int = 0
    next_due: float | None = None
    token_wait: float | None = None
    listing: Listing = Listing()


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
        on_drained: Callable[[str], None],
    ) -> None:
        self._state = state
        self._pump = pump
        self._connection = connection
        self._refusals = refusals
        self._is_settled = is_settled
        self._on_drained = on_drained
        self._due = 0.0
        self._gap = FIRST_GAP_SECONDS
        self._looked_at = -math.inf
        self._allowed_at = 0.0
        # How many jobs had been claimed at the last look, and the groups that it found.
        self._claimed = 0
        self._knows_of_keys = False
        self._vain = 0

    # What others say

    def note_news(self) -> None:
        """Look at once if nothing is known, and often after that."""
        self._gap = FIRST_GAP_SECONDS
        self._due = 0.0

    def look_by(self, time: float) -> None:
        """Look at *time* at the latest."""
        self._due = min(self._due, time)

    def begin_anew(self) -> None:
        self.note_news()

    @property
    def is_quiet(self) -> bool:
        """Has nothing been found for long enough to ask for notifications?"""
        return self._gap >= min(LISTEN_AFTER_SECONDS, self._state.options.poll_interval)

    # The duty

    def due_at(self, now: float) -> float:
        if not self._pump.wants_jobs:
            return math.inf
        if not self._pump.is_idle:
            due = self._looked_at + BUSY_SECONDS
        elif self._pump.claimed != self._claimed:
            due = 0.0
        else:
            due = self._due
        return max(due, self._allowed_at)

    def plan(self, turn: Turn) -> None:
        found = Found()
        claimed = self._pump.claimed
        is_empty = self._pump.is_idle and not self._state.held and self._is_settled()
        passed_over = self._refusals.passed_over()
        turn.begin(lambda error: self._promote_apart(found)).add(
            partial(jobs.send_promotion, max_jobs=PROMOTE_BATCH, passed_over=passed_over),
            partial(_note_promotion, found),
        )
        if self._knows_of_keys:
            turn.add(claims.send_token_wait, partial(_note_token_wait, found))
        with_lowest = self._state.options.ageing is not None
        turn.add(
            partial(claims.send_lane_listing, with_lowest=with_lowest),
            lambda rows: self._note_listing(turn, found, rows, claimed, is_empty=is_empty),
        )
