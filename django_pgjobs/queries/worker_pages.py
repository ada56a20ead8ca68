"""Questions of the page Workers. Ages are by the server's clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch

MAX_WORKERS = 100
# How long workers that have ended are shown.
ENDED_SECONDS = 86_400.0


class WorkerRow(NamedTuple):
    """A worker; durations are seconds, *lease* is how long its lease lasts when renewed.

    One over HTTP came with the token *token_id*; None: it is a process of ours.
    """

    id: int
    name: str
    host: str
    pid: int
    version: str
    queues: list[str] | None
    excluded_queues: list[str]
    slots: int
    listening: bool
    lost: bool
    has_ended: bool
    is_quiet: bool
    is_stopping: bool
    age: float
    silent: float
    ended_ago: float | None
    lease: float
    lease_left: float
    token_id: int | None


def list_workers(cursor: Cursor) -> list[WorkerRow]:
    """Return the live workers, then those that ended within a day; at most MAX_WORKERS and one."""
    params = {"ended_within": ENDED_SECONDS, "max_workers": MAX_WORKERS + 1}
    return [WorkerRow._make(row) for row in fetch(cursor, "list_workers", params)]


def get_worker(cursor: Cursor, worker_id: int) -> WorkerRow | None:
    """Return one worker, None if it is gone."""
    rows = fetch(cursor, "get_worker", {"id": worker_id})
    return WorkerRow._make(rows[0]) if rows else None


class HeldRow(NamedTuple):
    """A job that a worker runs, and how many jobs that worker holds in all, as far as counted."""

    worker_id: int
    held: int
    id: int
    task_path: str
    queue_name: str
    seconds: float
    timeout: float | None
    is_cancelling: bool


def list_running(
    cursor: Cursor, worker_ids: Iterable[int], *, max_jobs: int, max_counted: int
) -> dict[int, list[HeldRow]]:
    """Return worker id -> up to *max_jobs* of its running jobs, the longest running first.

    What one holds is counted up to one more than *max_counted*.
    """
    params = {
        "worker_ids": list(worker_ids),
        "max_jobs": max_jobs,
        "max_counted": max_counted,
    }
    found: dict[int, list[HeldRow]] = {}
    for row in fetch(cursor, "list_running_of_workers", params):
        found.setdefault(row[0], []).append(HeldRow._make(row))
    return found
