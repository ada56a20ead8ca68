"""Finding running jobs that somebody asked to cancel.

The way of a request: `control.lifecycle.cancel` notes it in the row and notifies the workers; the
upkeep hears that (`_hear`) and calls `note_request`; this duty lists the worker's jobs that are to
be cancelled and interrupts their attempts (`Attempt.interrupt`).

A notification may be lost, so there is a look every CANCEL_SECONDS that nobody asked for; without
LISTEN there is one each second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

from django_pgjobs.exceptions import JobCancelled
from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty

CANCEL_SECONDS = 10.0
POLL_SECONDS = 1.0
# A job may have been claimed by a claim whose answer is on its way.
UNDER_WAY_SECONDS = 0.1


class Cancels(Duty):
    """Interrupts the attempts of jobs that are to be cancelled."""

    def __init__(
        self,
        state: WorkerState,
        connection: OwnConnection,
        refusals: Refusals,
        on_interrupted: Callable[[Attempt], None],
    ) -> None:
        self._state = state
        self._connection = connection
        self._refusals = refusals
        self._on_interrupted = on_interrupted
        self._due = 0.0

    def note_request(self) -> None:
        """Look at once: somebody asked to cancel a job."""
        self._due = 0.0

    def begin_anew(self) -> None:
        self._due = 0.0

    def due_at(self, now: float) -> float:
        return self._due if self._state.held else math.inf

    def plan(self, turn: Turn) -> None:
        turn.add(partial(jobs.send_cancel_listing, worker_id=turn.worker_id), self._interrupt)

    def _interrupt(self, rows: Rows) -> None:
        pause = CANCEL_SECONDS if self._connection.listens else POLL_SECONDS
        # Jobs that the table says we run, and that are not under way to us.
        known = {*self._state.unwritable, *self._refusals.passed_over()} if rows else set()
        for (job_id,) in rows:
            attempt = self._state.held.get(job_id)
            if attempt is None and job_id not in known:
                pause = UNDER_WAY_SECONDS
            elif attempt is not None and attempt.interrupt(JobCancelled):
                self._on_interrupted(attempt)
        self._due = time.monotonic() + pause
