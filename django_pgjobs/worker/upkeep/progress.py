"""Writing what running tasks report of their progress, once a second."""

from __future__ import annotations

import math
import time

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.reports import unwritten
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.reporting import Reporter
from django_pgjobs.worker.turns.turn import Turn
from django_pgjobs.worker.upkeep.duty import Duty

PAUSE_SECONDS = 1.0


class Progress(Duty):
    """Writes the newest report of each attempt that the worker holds."""

    def __init__(self, state: WorkerState, connection: OwnConnection) -> None:
        self._state = state
        self._reporter = Reporter(connection, self._pause)
        self._due = 0.0

    def due_at(self, now: float) -> float:
        return self._due if unwritten(list(self._state.held.values())) else math.inf

    def plan(self, turn: Turn) -> None:
        self._reporter.plan(turn, list(self._state.held.values()))

    def _pause(self) -> None:
        self._due = time.monotonic() + PAUSE_SECONDS
