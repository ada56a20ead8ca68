"""Finding batches with changes that nobody has counted.

The pump counts what it finishes. Left are batches that it could not lock, changes by those who
count nothing (a cancel, a rescue, plain SQL), and what a killed worker left behind. This duty finds
them: once a second while there are some or jobs are running, else with the look for jobs; in a
drain, which is not to end before, with each look.
"""

from __future__ import annotations

import math
import time
from functools import partial

from django_pgjobs.queries import batches
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.look import Look

BUSY_SECONDS = 1.0
# How long a drain that has nothing else to do waits for batches. Somebody holds them then, or other
# workers, which count them as well, go on with them.
DRAIN_SECONDS = 2.0


class Batches(Duty):
    """Lists batches to be counted, a page at a time, for the pump."""

    def __init__(self, state: WorkerState, pump: Pump, look: Look) -> None:
        self._state = state
        self._pump = pump
        self._look = look
        self._looked_at = -math.inf
        # The batch behind which the next page begins, and whether the last page was empty.
        self._behind = 0
        self._is_empty = True
        # When there was nothing to count, or something else to do.
        self._free_at = -math.inf

    def note_news(self) -> None:
        """Look at once: something was noted and could not be counted."""
        self._looked_at = -math.inf

    def begin_anew(self) -> None:
        self._looked_at = -math.inf

    def due_at(self, now: float) -> float:
        due = self._looked_at + min(BUSY_SECONDS, self._state.options.poll_interval)
        if self._state.options.drain:
            return min(due, self._look.due_at(now))
        is_busy = bool(self._state.held) or not self._is_empty or self._looked_at == -math.inf
        return due if is_busy else max(due, self._look.due_at(now))

    def plan(self, turn: Turn) -> None:
        turn.add(partial(batches.send_changed, behind=self._behind), self._note)

    def _note(self, rows: Rows) -> None:
        ids, now = [batch_id for (batch_id,) in rows], time.monotonic()
        is_full = len(ids) == batches.PAGE
        # The next page at once; behind the last one the first again.
        self._looked_at = -math.inf if is_full else now
        self._is_empty = not ids and not self._behind
        self._behind = ids[-1] if is_full else 0
        if not ids or self._state.held or self._free_at == -math.inf:
            self._free_at = now
        if ids and not (self._state.options.drain and now > self._free_at + DRAIN_SECONDS):
            self._pump.settle(ids)
