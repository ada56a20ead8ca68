"""Statements on statistics: what ran, by minute, queue and task.

Rows are only appended, one for each process and minute, queue and task, so nobody waits for
anybody. The leader adds them up: parts become minutes, minutes hours, hours days.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, execute

MINUTE = 60
# What is counted of queues and tasks beyond those that are told apart.
OTHERS = ("(others)", "(others)")
# Times are counted in so many classes. Class 0 is below a millisecond, each next one ends at
# twice that of the one before, so the 27th ends at 18.6 hours; the last has no end.
CLASSES = 28


def class_of(seconds: float) -> int:
    """Return the class of a time."""
    return min(int(max(seconds, 0.0) * 1000).bit_length(), CLASSES - 1)


def upper_bound(place: int) -> float:
    """Return where a class ends, in seconds; the last one never does."""
    return float("inf") if place >= CLASSES - 1 else 2**place / 1000


@dataclass(slots=True)
class Cell:
    """Attempts of one queue and task: how they ended, how long they waited and ran.

    Seconds; the lists count by classes. Only attempts that ran have a waiting and a running time.
    """

    successful: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    waited: float = 0.0
    ran: float = 0.0
    waits: list[int] = field(default_factory=lambda: [0] * CLASSES)
    runs: list[int] = field(default_factory=lambda: [0] * CLASSES)

    def add(self, counter: str, waited: float, ran: float) -> None:
        """Count an attempt."""
        setattr(self, counter, getattr(self, counter) + 1)
        self.waited += waited
        self.ran += ran
        self.waits[class_of(waited)] += 1
        self.runs[class_of(ran)] += 1

    def merge(self, other: Cell, sign: int = 1) -> None:
        """Add another cell, or take it away again."""
        self.successful += sign * other.successful
        self.failed += sign * other.failed
        self.cancelled += sign * other.cancelled
        self.retried += sign * other.retried
        self.waited += sign * other.waited
        self.ran += sign * other.ran
        self.waits = [a + sign * b for a, b in zip(self.waits, other.waits, strict=True)]
        self.runs = [a + sign * b for a, b in zip(self.runs, other.runs, strict=True)]


class Minute(NamedTuple):
    """What a process counted in a minute: its number since 1970, cells by queue and task."""

    number: int
    cells: dict[tuple[str, str], Cell]


def send_statistics(cursor: Cursor, minutes: Sequence[Minute]) -> None:
    """Append what a process has counted."""
    rows = [
        {"minute": minute.number, "queue_name": queue_name, "task_path": task_path, **asdict(cell)}
        for minute in minutes
        for (queue_name, task_path), cell in minute.cells.items()
    ]
    execute(cursor, "write_statistics", {"cells": json.dumps(rows)})
