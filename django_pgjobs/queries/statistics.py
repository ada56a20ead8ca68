"""Statements on statistics: what ran, by minute, queue and task.

Rows are only appended, one for each process and minute, queue and task, so nobody waits for
anybody. The leader adds them up, again and again: parts become minutes, in the end days. It enters
parts into sums by queue and by task as well, and adds these up in the same way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, execute, fetch

MINUTE = 60
# Counts together all queues and tasks beyond those that are told apart.
OTHERS = ("(others)", "(others)")
# Queues and tasks of a minute that are told apart: their names may be without number.
MAX_CELLS = 1_000
# The number of classes in which times are counted. Class 0 ends at a millisecond, each next one at
# twice the end of the one before, so the 27th ends at 18.6 hours; the last has no end.
CLASSES = 28
LAST_CLASS = CLASSES - 1


def upper_bound(place: int) -> float:
    """Return where a class ends, in seconds; the last one never does."""
    return math.inf if place >= LAST_CLASS else 2**place / 1000


Key = tuple[str, str]


@dataclass(slots=True)
class Cell:
    """Attempts of one queue and task: how they ended, how long they waited and ran.

    *ends* counts those that were successful, failed, were cancelled, and are to be retried; *lost*
    those of other workers that were lost, *ends_of_lost* how many of these failed, were cancelled.
    *unbegun* of those that were cancelled were so before they began. Seconds; *waits* and *runs*
    count by classes of time.
    """

    ends: list[int] = field(default_factory=lambda: [0] * 4)
    waited: float = 0.0
    ran: float = 0.0
    waits: list[int] = field(default_factory=lambda: [0] * CLASSES)
    runs: list[int] = field(default_factory=lambda: [0] * CLASSES)
    lost: int = 0
    unbegun: int = 0
    ends_of_lost: list[int] = field(default_factory=lambda: [0] * 2)

    def merge(self, other: Cell, sign: int = 1) -> None:
        """Add another cell, or take it away again."""
        self.waited += sign * other.waited
        self.ran += sign * other.ran
        self.lost += sign * other.lost
        self.unbegun += sign * other.unbegun
        for mine, others in (
            (self.ends, other.ends),
            (self.waits, other.waits),
            (self.runs, other.runs),
            (self.ends_of_lost, other.ends_of_lost),
        ):
            mine[:] = [a + sign * b for a, b in zip(mine, others, strict=True)]


class Minute(NamedTuple):
    """What a process counted in a minute: its number since 1970, cells by queue and task."""

    number: int
    cells: dict[Key, Cell]


class RollUp(NamedTuple):
    """Which rows are added up to a longer period; seconds."""

    period: str
    into: str
    step: float
    keep: float


# How long rows of each period stay: as long as charts whose bars are no longer than that.
# `number_terms.py` and a CHECK of the table name the periods as well.
STEPS = (
    RollUp("part", "minute", MINUTE, 2 * MINUTE),
    RollUp("minute", "5 minutes", 300, 3600 + 300),
    RollUp("5 minutes", "15 minutes", 900, 7 * 3600),
    RollUp("15 minutes", "4 hours", 14_400, 26 * 3600),
    RollUp("4 hours", "day", 86_400, 7 * 86_400),
)
# Samples of each minute stay for a day, then the first of each hour for a month.
DENSE_SECONDS = 26 * 3600.0
SPARSE_SECONDS = 32 * 86400.0
# How old a sample is that has settled: the transactions that had enqueued something by then have
# ended, or are not counted. Less than from one sample to the next.
SETTLING_SECONDS = 50.0
# How many live jobs are counted exactly.
MAX_JOBS = 1_000_000
# How many queues have a sample of their own.
MAX_QUEUES = 500
PAGE = 20_000


def write_statistics(cursor: Cursor, minutes: Sequence[Minute]) -> None:
    """Append what a process has counted."""
    rows = [
        {
            "minute": minute.number,
            "queue_name": queue_name,
            "task_path": task_path,
            "ends": [a + b for a, b in zip(cell.ends, (0, *cell.ends_of_lost, 0), strict=True)],
            "lost": cell.lost,
            "waited": cell.waited,
            "ran": cell.ran,
            "waits": _without_end(cell.waits),
            "runs": _without_end(cell.runs),
        }
        for minute in minutes
        for (queue_name, task_path), cell in minute.cells.items()
    ]
    execute(cursor, "write_statistics", {"cells": json.dumps(rows)})


def measure_queues(cursor: Cursor) -> None:
    """Enter how many jobs have not finished, of each queue."""
    execute(cursor, "measure_queues", {"max_jobs": MAX_JOBS, "max_queues": MAX_QUEUES})


def count_enqueued(cursor: Cursor) -> None:
    """Append how many jobs came in up to the newest sample that has settled, once each."""
    params = {
        "settling": SETTLING_SECONDS,
        "max_jobs": MAX_JOBS,
        "max_names": MAX_CELLS,
        "others": OTHERS[0],
    }
    execute(cursor, "count_enqueued", params)


def roll_up(cursor: Cursor, step: RollUp) -> int:
    """Add a page of rows up to a longer period, parts to sums as well; return how many."""
    [(count,)] = fetch(cursor, "roll_up_statistics", {**step._asdict(), "max_rows": PAGE})
    return int(count)


def roll_up_sums(cursor: Cursor, step: RollUp) -> int:
    """Add a page of sums by queue and by task up to a longer period; return how many."""
    [(count,)] = fetch(cursor, "roll_up_sums", {**step._asdict(), "max_rows": PAGE})
    return int(count)


def prune_statistics(cursor: Cursor, *, retention: float | None) -> int:
    """Delete a page of what is older than *retention* seconds, and of samples; return how many.

    None: no statistics are too old. Samples never stay as long as that.
    """
    params = {
        "retention": retention,
        "dense": DENSE_SECONDS,
        "sparse": SPARSE_SECONDS,
        "max_rows": PAGE,
    }
    [(count,)] = fetch(cursor, "prune_statistics", params)
    return int(count)


def _without_end(counts: list[int]) -> list[int]:
    """Leave out the empty classes at the end."""
    last = max((place for place, count in enumerate(counts) if count), default=-1)
    return counts[: last + 1]
