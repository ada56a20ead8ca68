"""Asking whether people want something of the worker that it may not have heard of.

The way of an order: it is in the worker's row, and a notification lets the lease renew, which reads
and obeys it (`process.leases`). Nobody hears notifications while they wait for the watch, before
the commit that subscribes, nor between two sessions: so this is asked behind each of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from django_pgjobs.queries import workers
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty


class Orders(Duty):
    """Asks when something may have been missed."""

    def __init__(self, state: WorkerState, on_orders: Callable[[], None]) -> None:
        self._state = state
        self._on_orders = on_orders
        self._due = math.inf

    def note_missed(self) -> None:
        """Ask in the next turn."""
        self._due = 0.0

    def begin_anew(self) -> None:
        self._due = 0.0

    def due_at(self, now: float) -> float:
        return self._due

    def plan(self, turn: Turn) -> None:
        turn.add(partial(workers.send_orders, worker_id=turn.worker_id), self._note)

    def _note(self, rows: Rows) -> None:
        self._due = math.inf
        # There are no rows if somebody has deleted that of the worker: the lease will notice.
        for is_quiet, is_asked in rows:
            if is_asked or is_quiet != self._state.quiet:
                self._on_orders()
