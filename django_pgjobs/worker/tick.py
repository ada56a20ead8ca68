"""What a worker with running jobs does once a second: write progress, look for cancelled jobs.

A request to cancel is announced by a notification. One may be lost, so there is a look every
CANCEL_SECONDS that nobody asked for; without LISTEN there is one with each tick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import psycopg

from django_pgjobs.exceptions import JobCancelled
from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.careful import by_halves
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turn import Rows, Turn

logger = get_logger(__name__)

TICK_SECONDS = 1.0
CANCEL_SECONDS = 10.0

Report = tuple[Attempt, str]


class Tick:
    """Plans what is due of that."""

    def __init__(
        self,
        state: WorkerState,
        connection: OwnConnection,
        on_interrupted: Callable[[Attempt], None],
    ) -> None:
        self._state = state
        self._connection = connection
        self._on_interrupted = on_interrupted
        self.due = 0.0
        self._cancels_due = 0.0
        # How often somebody asked to look for cancelled jobs, and for how many there is an answer.
        self._cancels_asked = self._cancels_answered = 0

    def look_for_cancelled(self) -> None:
        """Look with the next turn; for one thread, that of the listener."""
        self._cancels_asked += 1

    def is_due(self, now: float) -> bool:
        """Is there something to do?"""
        return bool(self._state.held) and (now >= self.due or self._is_asked)

    @property
    def _is_asked(self) -> bool:
        return self._cancels_asked > self._cancels_answered

    def plan(self, turn: Turn, now: float, *, can_listen: bool) -> None:
        """Let what is due travel with the turn."""
        self.due = now + TICK_SECONDS
        held = list(self._state.held.values())
        reports = [(a, a.progress) for a in held if a.progress is not a.reported]
        if reports:
            turn.begin(lambda error: self._report_apart(reports)).add(
                partial(_send_reports, reports=reports),
                lambda rows: _note_reported(reports, rows),
            )
        if self._is_asked or now >= self._cancels_due or not can_listen:
            asked = self._cancels_asked
            turn.add(
                lambda cursor: jobs.send_cancel_listing(cursor, worker_id=turn.worker_id),
                lambda rows: self._interrupt_cancelled(asked, rows),
            )

    def _report_apart(self, reports: list[Report]) -> None:
        def write(some: Sequence[Report]) -> None:
            [rows] = self._connection.round_trip([partial(_send_reports, reports=some)])
            _note_reported(some, rows)

        def drop(report: Report, error: psycopg.Error) -> None:
            if trouble_of(error) is not Trouble.REFUSED:
                return  # it is written with a later tick
            attempt, text = report
            attempt.reported = text
            logger.error("job=%s its progress cannot be written: %s", attempt.id, error)

        by_halves(reports, write, on_refused=drop)

    def _interrupt_cancelled(self, asked: int, rows: Rows) -> None:
        self._cancels_answered = asked
        self._cancels_due = time.monotonic() + CANCEL_SECONDS
        for (job_id,) in rows:
            attempt = self._state.held.get(job_id)
            if attempt is not None and attempt.interrupt(JobCancelled):
                self._on_interrupted(attempt)


def _send_reports(cursor: Cursor, reports: Sequence[Report]) -> None:
    jobs.send_progress(cursor, [(a.id, a.claim, text) for a, text in reports])


def _note_reported(reports: Sequence[Report], rows: Rows) -> None:
    """Note what was written; where the row was locked it is written again with a later tick."""
    written = {row[0] for row in rows}
    for attempt, text in reports:
        if attempt.id in written:
            attempt.reported = text
