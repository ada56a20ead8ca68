"""Finding schedules that are planned too late, because a server's clock was ahead then.

The earlier occurrence is planned instead. If it has its row already, it gets no second job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_pgjobs.declaring.registry import find_task
from django_pgjobs.exceptions import UnknownTask
from django_pgjobs.queries import schedules as queries
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.schedules import EarlierSchedule, ScheduleRow
from django_pgjobs.schedules.plans import plan

# Schedules that are checked at a time.
PAGE = 100


class Checked(NamedTuple):
    """The schedules that are due earlier now, and the name to go on after; None: done."""

    moved: list[str]
    after: str | None


def check_planned(tasks: Sequence[str], after: str) -> Checked:
    """Check some schedules of *tasks*, those after a name; bring forward what is due earlier."""
    with job_cursor() as cursor:
        rows = queries.list_planned(cursor, tasks, after=after, max_schedules=PAGE)
        earlier = [found for row in rows if (found := _earlier(row)) is not None]
        moved = queries.bring_forward(cursor, earlier) if earlier else []
    return Checked(sorted(moved), rows[-1].name if len(rows) == PAGE else None)


def _earlier(row: ScheduleRow) -> EarlierSchedule | None:
    """Return when a schedule is due, if that is earlier than it was planned."""
    try:
        task = find_task(row.task_path)
    except UnknownTask:
        return None
    found = plan(row._replace(next_at=None), task).next_at
    if found is None or row.next_at is None or found >= row.next_at:
        return None
    return EarlierSchedule(row.name, row.next_at, found)
