"""Writing what running tasks report of their progress, once a second."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial

import psycopg

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.careful import by_halves
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty

logger = get_logger(__name__)

PAUSE_SECONDS = 1.0

Report = tuple[Attempt, str]


class Progress(Duty):
    """Writes the newest report of each attempt."""

    def __init__(self, state: WorkerState, connection: OwnConnection) -> None:
        self._state = state
        self._connection = connection
        self._due = 0.0

    def due_at(self, now: float) -> float:
        return self._due if self._reports() else math.inf

    def plan(self, turn: Turn) -> None:
        reports = self._reports()
        turn.begin(lambda error: self._report_apart(reports)).add(
            partial(_send_reports, reports=reports), partial(self._note, reports)
        )

    def _reports(self) -> list[Report]:
        held = list(self._state.held.values())
        return [(a, a.progress) for a in held if a.progress is not a.reported]

    def _note(self, reports: Sequence[Report], rows: Rows) -> None:
        """Note what was written; where the row was locked it is written again a second later."""
        self._due = time.monotonic() + PAUSE_SECONDS
        written = {row[0] for row in rows}
        for attempt, text in reports:
            if attempt.id in written:
                attempt.reported = text

    def _report_apart(self, reports: list[Report]) -> None:
        def write(some: Sequence[Report]) -> None:
            [rows] = self._connection.round_trip([partial(_send_reports, reports=some)])
            self._note(some, rows)

        def drop(report: Report, error: psycopg.Error) -> None:
            self._due = time.monotonic() + PAUSE_SECONDS
            if trouble_of(error) is not Trouble.REFUSED:
                return
            attempt, text = report
            attempt.reported = text
            logger.of(attempt).error("its progress cannot be written: %s", error)

        by_halves(reports, write, on_refused=drop)


def _send_reports(cursor: Cursor, reports: Sequence[Report]) -> None:
    jobs.send_progress(cursor, [(a.id, a.claim, a.longest_pause, text) for a, text in reports])
