"""Questions of the page Queues. Every count stops at a bound, whatever the tables hold."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.control import PauseRow
from django_pgjobs.queries.cursor import Cursor, fetch

MAX_QUEUES = 100
# Ready jobs are counted up to here for each backend and queue, ...
MAX_READY = 10_000
# ... and these are all rows that one statement may read of ready, later and running jobs.
MAX_READY_ROWS = 40_000
MAX_DUE = 20_000
MAX_RUNNING = 20_000
MAX_PAUSES = 80
MAX_LISTED_JOBS = 20


class QueueRow(NamedTuple):
    """A queue; *paused_at* is None if it is not paused."""

    name: str
    ready: int
    ready_is_cut: bool
    oldest: datetime | None
    scheduled: int
    retrying: int
    running: int
    max_running: int | None
    boost: int | None
    note: str | None
    paused_at: datetime | None
    reason: str | None
    paused_by: str | None
    resume_at: datetime | None
    workers: int
    slots: int


def list_queues(cursor: Cursor) -> list[QueueRow]:
    """Return the queues in order of their names, at most MAX_QUEUES."""
    params = {
        "max_queues": MAX_QUEUES,
        "max_ready": MAX_READY,
        "max_rows": MAX_READY_ROWS,
        "max_due": MAX_DUE,
        "max_running": MAX_RUNNING,
    }
    return [QueueRow._make(row) for row in fetch(cursor, "list_queues", params)]


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
