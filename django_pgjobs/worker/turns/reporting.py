"""Writing what tasks have reported of their progress: now and then, and the last before the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import psycopg

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.reports import Report, log_refused, send_reports, unwritten
from django_pgjobs.worker.turns.careful import by_halves
from django_pgjobs.worker.turns.turn import Rows, Turn


class Reporter:
    """Writes reports over one connection; *on_answer* is told when the server has answered."""

    def __init__(
        self, connection: OwnConnection, on_answer: Callable[[], None] = lambda: None
    ) -> None:
        self._connection = connection
        self._on_answer = on_answer

    def plan(self, turn: Turn, attempts: Iterable[Attempt]) -> None:
        """Add the newest report of each attempt that has one to the turn."""
        reports = unwritten(attempts)
        if reports:
            turn.begin(lambda error: self._write_apart(reports)).add(
                partial(send_reports, reports=reports), partial(self._note, reports)
            )

    def _note(self, reports: Sequence[Report], rows: Rows) -> None:
        """Note what was written; where the row was locked it is written with a later report."""
        self._on_answer()
        written = {row[0] for row in rows}
        for attempt, text in reports:
            if attempt.id in written:
                attempt.reported = text

    def _write_apart(self, reports: list[Report]) -> None:
        def write(some: Sequence[Report]) -> None:
            [rows] = self._connection.round_trip([partial(send_reports, reports=some)])
            self._note(some, rows)

        def drop(report: Report, error: psycopg.Error) -> None:
            self._on_answer()
            if trouble_of(error) is not Trouble.REFUSED:
                return
            attempt, text = report
            attempt.reported = text
            log_refused(attempt, error)

        by_halves(reports, write, on_refused=drop)
