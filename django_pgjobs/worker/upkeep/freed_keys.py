"""Notifying idle workers of jobs that may start because one with the same key has ended here."""

from __future__ import annotations

import math
import time
from functools import partial

from django_pgjobs.queries import claims
from django_pgjobs.queries.notifications import JOBS_CHANNEL
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty

# Shortest time between two notifications: keys freed meanwhile are told of together.
GAP_SECONDS = 0.05


class FreedKeys(Duty):
    """Notifies the workers that listen of the queues whose jobs wait for the keys."""

    def __init__(self, errands: Errands) -> None:
        self._errands = errands
        # Those of a turn that is not answered yet.
        self._lanes: set[str] = set()
        self._told_at = 0.0

    def due_at(self, now: float) -> float:
        return self._told_at + GAP_SECONDS if self._lanes or self._errands.has_freed else math.inf

    def plan(self, turn: Turn) -> None:
        self._lanes = self._lanes or self._errands.take_freed()

        def note(rows: Rows) -> None:
            self._lanes = set()
            self._told_at = time.monotonic()

        send = partial(claims.send_key_wakeup, channel=JOBS_CHANNEL, lanes=self._lanes)
        turn.add(send, note)
