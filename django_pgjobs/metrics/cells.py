"""What was counted by queue and task, so that the number of labels is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django_pgjobs.metrics import names
from django_pgjobs.queries.statistics import Cell

# In the order of `Cell.ends`.
OUTCOMES = ("successful", "failed", "cancelled", "retried")

Key = tuple[str, str]
Cells = Mapping[Key, Cell]


def attempts_of(cells: Cells) -> Iterator[tuple[Key, str, int]]:
    """Yield the attempts of each queue and task that ended in each way, if there were any."""
    for key, cell in cells.items():
        successful, failed, cancelled, retried = cell.ends
        ends = successful, failed, cancelled - cell.unbegun, retried
        for outcome, number in zip(OUTCOMES, ends, strict=True):
            if number:
                yield key, outcome, number


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
