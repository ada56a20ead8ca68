"""Running jobs that have run for long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch


class LongRun(NamedTuple):
    """A job that a live worker has run for *seconds*; *progress* is JSON, None without a report."""

    id: int
    task_path: str
    queue_name: str
    worker_id: int
    worker_name: str
    seconds: float
    progress: str | None
    now: datetime


def list_long_runs(
    cursor: Cursor, *, seconds: float, max_jobs: int, ids: Sequence[int] | None
) -> list[LongRun]:
    """Return jobs that have run for *seconds* or more, of *ids* or of all, the longest first."""
    params = {
        "long_seconds": seconds,
        "max_runs": max_jobs,
        "ids": None if ids is None else list(ids),
    }
    return [LongRun._make(row) for row in fetch(cursor, "list_long_runs", params)]
