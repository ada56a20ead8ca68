"""Questions of the pages that show queues. Each reads a bounded number of rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries import numbers
from django_pgjobs.queries.control import PauseRow
from django_pgjobs.queries.cursor import Cursor, fetch
from django_pgjobs.queries.numbers import Size
from django_pgjobs.queries.statistics import MAX_QUEUES as MAX_SAMPLED

MAX_QUEUES = 60
# Backends, queues, kinds and priorities with ready jobs that are looked at, and jobs of each for
# the oldest of them.
MAX_LANES = 2_000
MAX_NEXT = 10
MAX_RUNNING = 20_000
MAX_PAUSES = 80
MAX_LISTED_JOBS = 20


class QueueRow(NamedTuple):
    """A queue; *paused_at* is None if it is not paused, *size* if it is not known.

    *waiting_since*: since when the oldest job waits that may run, or longer if there are many.
    *is_unserved*: jobs are ready that no live worker takes. This is what every page says of it.
    """

    name: str
    size: Size | None
    waiting_since: datetime | None
    max_running: int | None
    boost: int | None
    note: str | None
    paused_at: datetime | None
    reason: str | None
    paused_by: str | None
    resume_at: datetime | None
    workers: int
    slots: int
    is_unserved: bool


class Queues(NamedTuple):
    """The queues in order of their names; *size* is that of all together, also of those left out.

    So is *waiting_since*.
    """

    size: Size
    waiting_since: datetime | None
    rows: list[QueueRow]
    has_more: bool


def list_queues(
    cursor: Cursor,
    *,
    also_names: Iterable[str] = (),
    queue_name: str | None = None,
    max_queues: int = MAX_QUEUES,
) -> Queues:
    """Return at most *max_queues* queues, or one; those of *also_names* may have no jobs."""
    params = {
        "max_jobs": numbers.FEW,
        "max_queues": max_queues + 1,
        "max_sampled": MAX_SAMPLED,
        "max_lanes": MAX_LANES,
        "max_next": MAX_NEXT,
        "also_names": list(also_names),
        "queue_name": queue_name,
    }
    found = []
    for row in fetch(cursor, "list_queues", params):
        size = Size._make(row[:8])
        is_known = None not in (size.ready, size.measured_at)
        found.append((size, QueueRow(row[0], size if is_known else None, *row[8:])))
    found.sort(key=lambda each: (each[1].name is not None, each[1].name or ""))
    (size, total), *others = found
    # Somebody's INSERT may have made two samples of one moment.
    rows = list({row.name: row for _, row in others if row.name is not None}.values())
    return Queues(size, total.waiting_since, rows[:max_queues], len(rows) > max_queues)


def list_pauses(cursor: Cursor) -> list[PauseRow]:
    """Return the pauses of tasks and keys, at most MAX_PAUSES."""
    return [PauseRow._make(row) for row in fetch(cursor, "list_pauses", {"max_pauses": MAX_PAUSES})]


class RunningRow(NamedTuple):
    """A running job; *seconds* since its attempt began."""

    id: int
    task_path: str
    worker_id: int | None
    worker_name: str | None
    seconds: float | None


def list_running_in_queue(cursor: Cursor, queue_name: str) -> list[RunningRow]:
    """Return the jobs of a queue that run longest, at most MAX_LISTED_JOBS."""
    params = {
        "queue_name": queue_name,
        "max_running": MAX_RUNNING,
        "max_jobs": MAX_LISTED_JOBS,
    }
    return [RunningRow._make(row) for row in fetch(cursor, "list_running_in_queue", params)]
