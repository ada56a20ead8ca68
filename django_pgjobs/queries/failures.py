"""Reads of failed jobs by what went wrong."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch


class FailureRow(NamedTuple):
    """Failed jobs of one task, exception class and message, among those that were looked at.

    *periods* and *period_jobs* belong together: how many failed in which 28th of 7 days, 0 the
    newest. *traceback* is the end of the example's. The last three are the same in all rows.
    *first_at* is when an attempt failed so for the first time, also if it was retried.
    """

    task_path: str
    error_class: str
    error_message: str
    jobs: int
    jobs_hour: int
    jobs_day: int
    jobs_week: int
    first_at: datetime
    last_at: datetime
    newest_id: int
    message: str
    traceback: str
    periods: list[int]
    period_jobs: list[int]
    all_jobs: int
    all_since: datetime
    all_groups: int


def list_failures(
    cursor: Cursor, *, seconds: float, max_jobs: int, max_groups: int, newest_first: bool = False
) -> list[FailureRow]:
    """Return the groups of the newest failed jobs, the largest first or the newest.

    At most *max_jobs* are looked at, none that failed more than *seconds* ago.
    """
    params = {
        "seconds": seconds,
        "max_jobs": max_jobs,
        "max_groups": max_groups,
        "newest_first": newest_first,
    }
    rows = fetch(cursor, "list_failures", params)
    return [_with_first(FailureRow._make(row[:-1]), row[-1]) for row in rows]


def _with_first(row: FailureRow, text: str | None) -> FailureRow:
    """Return *row* with the time of the first attempt, if that is one and earlier."""
    try:
        first_at = datetime.fromisoformat(text) if text else row.first_at
    except ValueError:
        return row
    return row._replace(first_at=min(first_at, row.first_at))
