"""The metrics of one worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django_pgjobs.metrics import names
from django_pgjobs.metrics.cells import Cells, attempts_of, by_queue, fold
from django_pgjobs.metrics.exposition import Exposition
from django_pgjobs.queries.statistics import CLASSES, upper_bound

BOUNDS = tuple(upper_bound(place) for place in range(CLASSES))


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """The present state of a worker.

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
    folded = fold(totals)
    for (queue, task), outcome, number in attempts_of(folded):
        said.add(names.ATTEMPTS, number, queue, task, outcome)
    for (queue, task), cell in folded.items():
        said.add_histogram(names.ATTEMPT_DURATION, BOUNDS, cell.runs, cell.ran, queue, task)
    for queue, cell in by_queue(totals).items():
        said.add_histogram(names.ATTEMPT_WAIT, BOUNDS, cell.waits, cell.waited, queue)


def named_queues(queues: Iterable[str] | None, excluded: Iterable[str]) -> str:
    """Return in one label which queues a worker serves."""
    served = "*" if queues is None else ",".join(sorted(queues))
    return served + "".join(f",-{name}" for name in sorted(excluded))
