"""Which workers there are, in which state, and what they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_pgjobs.queries import worker_pages
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.worker_pages import HeldRow, WorkerRow

# Running jobs on the list: of one worker, and of all together.
MAX_JOBS = 10
MAX_JOBS_IN_ALL = 150
# What is counted of the jobs that a worker holds, which claims some thousands ahead: of each, and
# of all together.
MAX_COUNTED = 6_000
MAX_COUNTED_IN_ALL = 60_000
# A renewal takes a moment: only a heartbeat that is later than this is late.
GRACE_SECONDS = 2.0


class Workers(NamedTuple):
    """One worker, or the live ones and then those that ended lately, and some of what each runs.

    *running* is by their ids. What one holds is counted up to one more than *max_counted*. With
    *is_cut* there are more.
    """

    rows: list[WorkerRow]
    running: dict[int, list[HeldRow]]
    max_counted: int
    is_cut: bool = False

    @property
    def live(self) -> list[WorkerRow]:
        """The live ones."""
        return [row for row in self.rows if is_live(row)]

    @property
    def are_mixed(self) -> bool:
        """Are live ones of different versions? Those over HTTP count theirs themselves."""
        return len({row.version for row in self.live if row.token_id is None}) > 1


def read_workers(cursor: Cursor) -> Workers:
    """Ask the database."""
    found = worker_pages.list_workers(cursor)
    rows = found[: worker_pages.MAX_WORKERS]
    live = [row.id for row in rows if not row.has_ended]
    most = _share(MAX_COUNTED, MAX_COUNTED_IN_ALL, live)
    jobs = _share(MAX_JOBS, MAX_JOBS_IN_ALL, live)
    running = worker_pages.list_running(cursor, live, max_jobs=jobs, max_counted=most)
    return Workers(rows, running, most, is_cut=len(found) > len(rows))


def read_worker(cursor: Cursor, worker_id: int, *, max_jobs: int) -> Workers:
    """Ask the database for one worker, which may be gone, and so many of its jobs."""
    row = worker_pages.get_worker(cursor, worker_id)
    running = worker_pages.list_running(
        cursor, [worker_id], max_jobs=max_jobs, max_counted=MAX_COUNTED
    )
    return Workers([row] if row else [], running, MAX_COUNTED)


def _share(most: int, most_in_all: int, live: Sequence[int]) -> int:
    """Return how much each of the live workers may have of something."""
    return max(1, min(most, most_in_all // max(1, len(live))))


def is_live(row: WorkerRow) -> bool:
    """Has it not ended, nor lost its lease?"""
    return not row.has_ended and row.lease_left > 0


def state_of(row: WorkerRow) -> str:
    """Return what it does: running, quiet or stopping, or that it has ended or is lost."""
    if row.has_ended:
        return "lost" if row.lost else "ended"
    if row.lease_left <= 0:
        return "lost"
    if row.is_stopping:
        return "stopping"
    return "quiet" if row.is_quiet else "running"


def heartbeat_of(row: WorkerRow) -> str:
    """Return how its heartbeat is: on-time, late or lost."""
    if row.lease_left <= 0:
        return "lost"
    return "late" if is_late(row.silent, row.lease) else "on-time"


def is_late(silent: float, lease: float) -> bool:
    """Is a heartbeat of *silent* seconds ago late? One is due in every third of the *lease*."""
    return silent > lease / 3 + GRACE_SECONDS
