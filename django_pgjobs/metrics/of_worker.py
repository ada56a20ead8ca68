"""What one worker says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django_pgjobs.metrics import names
from django_pgjobs.metrics.exposition import Exposition
from django_pgjobs.queries.statistics import CLASSES, Cell, upper_bound

BOUNDS = tuple(upper_bound(place) for place in range(CLASSES))
# In the order of `Cell.ends`.
OUTCOMES = ("successful", "failed", "cancelled", "retried")

Cells = Mapping[tuple[str, str], Cell]


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """How things stand in a worker.

    *slots* are how many there are and how many run something, by kind; *renewed_at* is in seconds
    since 1970; *opened* counts connections by role.
    """

    name: str
    version: str
    queues: str
    slots: Mapping[str, tuple[int, int]]
    renewed_at: float
    is_live: bool
    is_ready: bool
    opened: Mapping[str, int]


def describe_worker(facts: WorkerFacts, totals: Cells) -> bytes:
    """Return the metrics of a worker; *totals* are what it counted, by queue and task."""
    said = Exposition()
    said.add(names.INFO, 1, facts.name, facts.version, facts.queues)
    said.add(names.LIVE, int(facts.is_live))
    said.add(names.READY, int(facts.is_ready))
    said.add(names.HEARTBEAT, facts.renewed_at)
    for kind, (most, busy) in facts.slots.items():
        said.add(names.SLOTS, most, kind)
        said.add(names.SLOTS_BUSY, busy, kind)
    for role, count in facts.opened.items():
        said.add(names.CONNECTIONS, count, role)
    add_attempts(said, totals)
    return said.text()


def add_attempts(said: Exposition, totals: Cells) -> None:
    """Add what cells count."""
    for (queue, task), cell in fold(totals).items():
        for outcome, number in zip(OUTCOMES, cell.ends, strict=True):
            if number:
                said.add(names.ATTEMPTS, number, queue, task, outcome)
        said.add_histogram(names.ATTEMPT_DURATION, BOUNDS, cell.runs, cell.ran, queue, task)
    for queue, cell in by_queue(totals).items():
        said.add_histogram(names.ATTEMPT_WAIT, BOUNDS, cell.waits, cell.waited, queue)


def fold(cells: Cells) -> dict[tuple[str, str], Cell]:
    """Return cells with a bounded number of tasks: the first ones, and the others together.

    The order of the cells decides, so that a task that was folded once always is.
    """
    known: set[str] = set()
    folded: dict[tuple[str, str], Cell] = {}
    for (queue, task), cell in cells.items():
        if len(known) < names.MAX_TASKS:
            known.add(task)
        key = queue, task if task in known else names.OTHERS
        folded.setdefault(key, Cell()).merge(cell)
    return folded


def by_queue(cells: Cells) -> dict[str, Cell]:
    """Return one cell for each queue."""
    queues: dict[str, Cell] = {}
    for (queue, _task), cell in cells.items():
        queues.setdefault(queue, Cell()).merge(cell)
    return queues


def named_queues(queues: Iterable[str] | None, excluded: Iterable[str]) -> str:
    """Return in one label which queues a worker serves."""
    served = "*" if queues is None else ",".join(sorted(queues))
    return served + "".join(f",-{name}" for name in sorted(excluded))
