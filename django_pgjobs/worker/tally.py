"""The tally: what a process has run, by minute, queue and task.

A number is added for each attempt whose outcome is stored. Minutes that are over are taken from
here and written (`queries.statistics`); `totals` is what the process counted since it began, for
its own metrics. Safe from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from django_pgjobs.queries.statistics import MINUTE, OTHERS, Cell, Minute

# How long outcomes of a minute may still come when it is over; later ones get a row more.
CLOSING_SECONDS = 5.0
# Queues and tasks that are told apart: their names may be without number.
MAX_CELLS = 1_000

Cells = dict[tuple[str, str], Cell]


class Tally:
    """Counts attempts; minutes are those of the server's clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[int, Cells] = {}
        self._totals: Cells = {}
        # What to add to time.monotonic() for the server's seconds since 1970.
        self._offset = time.time() - time.monotonic()

    def set_clock(self, server_time: float, asked_at: float) -> None:
        """Note what the server's clock said when it was asked, by time.monotonic()."""
        self._offset = server_time - asked_at

    def note(
        self, key: tuple[str, str], counter: str, *, waited: float, ran: float, ended_at: float
    ) -> None:
        """Count an attempt of a job with this queue and task: how it ended, and when.

        *counter* is a field of `Cell`; seconds; *ended_at* by time.monotonic().
        """
        minute = int((ended_at + self._offset) // MINUTE)
        with self._lock:
            cells = self._minutes.get(minute)
            if cells is None:
                cells = self._minutes[minute] = {}
            cell = cells.get(key) or _new_cell(cells, key)
            cell.add(counter, waited, ran)

    @property
    def due_at(self) -> float:
        """When the earliest minute is to be written, by time.monotonic(); infinite if none is."""
        with self._lock:
            first = min(self._minutes, default=None)
        if first is None:
            return float("inf")
        return (first + 1) * MINUTE + CLOSING_SECONDS - self._offset

    def take(self, *, is_last: bool = False) -> list[Minute]:
        """Take the minutes that are over; all of them if the process ends.

        They are gone from here: who cannot write them gives them back.
        """
        over = int((time.monotonic() + self._offset - CLOSING_SECONDS) // MINUTE)
        with self._lock:
            minutes = [m for m in self._minutes if is_last or m < over]
            taken = [Minute(m, self._minutes.pop(m)) for m in sorted(minutes)]
            for minute in taken:
                _merge(self._totals, minute.cells)
        return taken

    def give_back(self, minutes: list[Minute]) -> None:
        """Take back what could not be written, to be taken again."""
        with self._lock:
            for minute in minutes:
                _merge(self._minutes.setdefault(minute.number, {}), minute.cells)
                _merge(self._totals, minute.cells, sign=-1)

    def totals(self) -> Cells:
        """Return what was counted since the process began, by queue and task."""
        with self._lock:
            totals: Cells = {}
            for cells in (self._totals, *self._minutes.values()):
                _merge(totals, cells)
        return totals


def _new_cell(cells: Cells, key: tuple[str, str]) -> Cell:
    if len(cells) >= MAX_CELLS:
        key = OTHERS
    return cells.setdefault(key, Cell())


def _merge(into: Cells, cells: Mapping[tuple[str, str], Cell], sign: int = 1) -> None:
    for key, cell in cells.items():
        (into.get(key) or _new_cell(into, key)).merge(cell, sign)
