"""The tally: what a process has run, by minute, queue and task.

Attempts are counted when their outcome is stored, by the minute of the server's clock in which they
ended; those of lost workers by the one that rescues their jobs. Minutes that are over are taken
from here and written; `totals` is what the process has run since it began,
for its own metrics. Safe from any thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from math import floor

import psycopg

from django_pgjobs.queries import statistics
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.errors import Trouble, is_undone, trouble_of
from django_pgjobs.queries.jobs import Rescued
from django_pgjobs.queries.schedules import get_now
from django_pgjobs.queries.statistics import (
    LAST_CLASS,
    MAX_CELLS,
    MINUTE,
    OTHERS,
    Cell,
    Key,
    Minute,
)
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome

# How long outcomes of a minute may still come when it is over; later ones get rows of their own.
CLOSING_SECONDS = 5.0
# A process that stood still for longer does not know when the server's answer was true.
CLOCK_SECONDS = 1.0
# So that processes do not write all at once.
SPREAD_SECONDS = 3.0
# As long as nothing can be written, minutes above so many are added to the next one, and so are
# those with so many cells together, of a kilobyte each.
MAX_MINUTES = 120
MAX_KEPT = 20_000
# So many rows take a second or so; after an outage there are many.
MAX_WRITTEN = 5_000

# Where each kind is counted (`Cell.ends`); other kinds are no ends of a run.
_PLACES = {Kind.DONE: 0, Kind.FAIL: 1, Kind.CANCEL: 2, Kind.EXPIRE: 2, Kind.RETRY: 3}
# What ends as cancelled, also before it began.
_ENDS_UNBEGUN = (Kind.CANCEL, Kind.EXPIRE)
# Where is counted how a job ended with its loss (`Cell.ends_of_lost`).
_ENDS_OF_LOST = {"failed": 0, "cancelled": 1}

Cells = dict[Key, Cell]


class Tally:
    """Counts attempts."""

    def __init__(self) -> None:
        # Taken before the other one, and for longer: outcomes are not to wait for sums.
        self._totals_lock = threading.Lock()
        self._lock = threading.Lock()
        self._minutes: dict[int, Cells] = {}
        # Of minutes that were taken.
        self._totals: Cells = {}
        # What to add to time.monotonic() for the server's seconds since 1970.
        self._offset = time.time() - time.monotonic()
        self._knows_clock = False

    def set_clock(self, server_time: float, asked_at: float) -> None:
        """Note what the server's clock said when it was asked, by time.monotonic().

        What was counted before it was first asked moves along: this machine's may be hours wrong.
        """
        with self._lock:
            offset = server_time - asked_at
            if not self._knows_clock and self._minutes:
                moved = round((offset - self._offset) / MINUTE)
                self._minutes = {number + moved: cells for number, cells in self._minutes.items()}
            self._offset, self._knows_clock = offset, True

    def note(self, entries: Iterable[tuple[Attempt, Outcome]]) -> None:
        """Count attempts whose outcomes are stored.

        This is done for every job, so what it has in common with the one before is not looked up.
        """
        offset = self._offset
        begins = ends = 0.0
        cells: Cells = {}
        cell: Cell | None = None
        key: Key = OTHERS
        with self._lock:
            for attempt, outcome in entries:
                place = _PLACES.get(outcome.kind)
                if place is None:
                    continue
                if not begins <= outcome.ended_at < ends:
                    minute = int((outcome.ended_at + offset) // MINUTE)
                    begins = minute * MINUTE - offset
                    ends = begins + MINUTE
                    cells, cell = self._cells_of(minute), None
                queue_name, task_path = attempt.queue_name, attempt.row.task_path
                if cell is None or queue_name != key[0] or task_path != key[1]:
                    key = (queue_name, task_path)
                    cell = cells.get(key) or _new_cell(cells, key)
                cell.ends[place] += 1
                started_at = attempt.started_at
                if not started_at:  # it expired before it began
                    cell.unbegun += outcome.kind in _ENDS_UNBEGUN
                    continue
                waited = attempt.waited + started_at - attempt.claimed_at
                if waited < 0.0:
                    waited = 0.0
                ran = outcome.duration
                cell.waited += waited
                cell.ran += ran
                # The class is the number of binary digits of the milliseconds.
                place = floor(waited * 1000.0).bit_length() if waited >= 0.001 else 0
                cell.waits[place if place < LAST_CLASS else LAST_CLASS] += 1
                place = floor(ran * 1000.0).bit_length() if ran >= 0.001 else 0
                cell.runs[place if place < LAST_CLASS else LAST_CLASS] += 1

    def note_rescued(self, rescued: Iterable[Rescued]) -> None:
        """Count attempts of lost workers, and what became of their jobs."""
        with self._lock:
            cells = self._cells_of(int((time.monotonic() + self._offset) // MINUTE))
            for job in rescued:
                key = (job.queue_name, job.task_path)
                cell = cells.get(key) or _new_cell(cells, key)
                cell.lost += 1
                if (place := _ENDS_OF_LOST.get(job.status)) is not None:
                    cell.ends_of_lost[place] += 1

    @property
    def is_empty(self) -> bool:
        """Is there nothing to be written?"""
        return not self._minutes

    def next_close(self) -> float:
        """Return in how many seconds the next minute closes."""
        now = time.monotonic() + self._offset - CLOSING_SECONDS
        return MINUTE - math.fmod(now, MINUTE)

    def take(self, *, is_last: bool = False, max_cells: float = math.inf) -> list[Minute]:
        """Take the minutes that are closed; all of them if the process ends.

        Of many the first ones with about *max_cells* cells. Who cannot write them gives them back.
        """
        now = int((time.monotonic() + self._offset - CLOSING_SECONDS) // MINUTE)
        taken: list[Minute] = []
        size = 0
        with self._totals_lock:
            with self._lock:
                for number in sorted(self._minutes):
                    if (number < now or is_last) and size < max_cells:
                        taken.append(Minute(number, self._minutes.pop(number)))
                        size += len(taken[-1].cells)
            for minute in taken:
                _merge(self._totals, minute.cells)
        return taken

    def give_back(self, minutes: Iterable[Minute]) -> None:
        """Take back what could not be written, to be taken again."""
        with self._totals_lock:
            for minute in minutes:
                _merge(self._totals, minute.cells, sign=-1)
                with self._lock:
                    newer = self._minutes.get(minute.number, {})
                    self._minutes[minute.number] = minute.cells
                    _merge(minute.cells, newer)
            with self._lock:
                self._limit()

    def write(self, connection: OwnConnection, *, is_last: bool = False) -> None:
        """Write the minutes that are closed, all of them if the process ends; raise psycopg.Error.

        What the server has refused, or was not sent, is written later.
        """
        connection.open()
        while minutes := self.take(is_last=is_last, max_cells=MAX_WRITTEN):
            try:
                with connection.cursor() as cursor:
                    statistics.write_statistics(cursor, minutes)
            except psycopg.Error as error:
                # Without an answer they may have been written: better too few are counted than too
                # many.
                if trouble_of(error) is not Trouble.LOST or is_undone(error):
                    self.give_back(minutes)
                raise

    def _limit(self) -> None:
        while len(self._minutes) > MAX_MINUTES or (
            len(self._minutes) > 1 and sum(map(len, self._minutes.values())) > MAX_KEPT
        ):
            first, second = sorted(self._minutes)[:2]
            _merge(self._minutes[second], self._minutes.pop(first))

    def totals(self) -> Cells:
        """Return what was counted since the process began, by queue and task."""
        with self._totals_lock, self._lock:
            totals: Cells = {}
            for cells in (self._totals, *self._minutes.values()):
                _merge(totals, cells)
        return {key: cell for key, cell in totals.items() if any(cell.ends)}

    def _cells_of(self, minute: int) -> Cells:
        cells = self._minutes.get(minute)
        if cells is None:
            cells = self._minutes[minute] = {}
        return cells


def _new_cell(cells: Cells, key: Key) -> Cell:
    if len(cells) >= MAX_CELLS:
        key = OTHERS
    return cells.setdefault(key, Cell())


def _merge(into: Cells, cells: Mapping[Key, Cell], sign: int = 1) -> None:
    for key, cell in cells.items():
        (into.get(key) or _new_cell(into, key)).merge(cell, sign)


def ask_clock(tally: Tally, cursor: Cursor) -> None:
    """Ask for the server's time, which decides in which minute an attempt ended."""
    asked_at = time.monotonic()
    server_time = get_now(cursor).timestamp()
    if time.monotonic() - asked_at < CLOCK_SECONDS:
        tally.set_clock(server_time, asked_at)
