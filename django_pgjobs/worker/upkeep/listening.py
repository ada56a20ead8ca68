"""The flag in the worker's row that says whether enqueues are to notify it.

It is committed before the look that follows: a job that notified nobody, because the flag was not
set yet, is found by that look, or by those that follow it soon if its transaction is still open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import psycopg

from django_pgjobs.queries import workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.outlook import Outlook
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.look import LISTEN_AFTER_SECONDS, Look

# A worker that has found jobs for so long clears the flag, ...
BUSY_SECONDS = 0.05
# ... and so does one whose slots have been taken for so long.
FULL_SECONDS = 1.0
# When a worker whose own row was locked tries again.
AGAIN_SECONDS = 1.0


class Listening(Duty):
    """Sets the flag while the worker hears what its pump waits for, and clears it."""

    travels_alone = True

    def __init__(
        self,
        state: WorkerState,
        outlook: Outlook,
        connection: OwnConnection,
        look: Look,
        *,
        hears: Callable[[], bool],
    ) -> None:
        self._state = state
        self._outlook = outlook
        self._connection = connection
        self._look = look
        # Does a notification of new jobs reach it?
        self._hears = hears
        # The worker id that the table shows as listening; None: unknown, a connection broke.
        self._said_of: int | None = 0
        self._again_at = 0.0

    def begin_anew(self) -> None:
        if self._said_of:
            self._said_of = None

    def due_at(self, now: float) -> float:
        if self._said_of is None:
            due = now
        elif self.is_said:
            pause = FULL_SECONDS if self._outlook.is_idle else BUSY_SECONDS
            if not self._outlook.waits_for_news:
                due = self._outlook.waited_at + pause
            else:
                due = math.inf if self._hears() else now
        elif self._outlook.waits_for_news and self._hears():
            due = self._look.due_at(now)
            if due > now + LISTEN_AFTER_SECONDS:
                # The gaps between its looks are those of a worker that had jobs or was told of all,
                # or its looks are slow.
                due = now
            elif not self._look.is_quiet:
                return math.inf
        else:
            return math.inf
        return max(due, self._again_at)

    def plan(self, turn: Turn) -> None:
        says = self._said_of is not None and not self.is_said
        send = partial(workers.set_listening, worker_id=turn.worker_id, listening=says)

        def note(rows: Rows) -> None:
            if rows:
                self._said_of = turn.worker_id if says else 0
                if says:
                    self._look.take_over()
            else:
                try_later()

        def try_later(error: psycopg.Error | None = None) -> None:
            # Somebody holds the worker's row, or it cannot be changed.
            self._again_at = time.monotonic() + AGAIN_SECONDS
            self._look.look_by(self._again_at)

        turn.begin(try_later).add(send, note)

    @property
    def is_said(self) -> bool:
        """Does the table show that this worker listens?"""
        return self._said_of == self._state.worker_id
