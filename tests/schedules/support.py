"""What the tests of schedules share: rows, and turns of a scheduler by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from django_pgjobs.declaring import schedules as declaring
from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.schedules.firing import ScheduleTurn, fire_due
from tests.schedules import tasks

NOTE_TIME = tasks.note_time.module_path
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def make_schedule(name: str = "each hour", task_path: str = NOTE_TIME, **columns: Any) -> Schedule:
    """Insert a schedule of one hour, planned by a turn of its own."""
    if "cron" not in columns:
        columns.setdefault("every", 3600.0)
    row = Schedule.objects.create(name=name, task_path=task_path, **columns)
    # From here on and not from the INSERT, since when one of a second may have been due.
    fire_due(now=datetime.now(UTC))
    row.refresh_from_db()
    return row


def let_be_due(row: Schedule, ago: timedelta = timedelta()) -> datetime:
    """Let a schedule be due *ago*, or rather at its last occurrence before; return that."""
    instant = datetime.now(UTC) - ago
    if row.every:
        instant -= timedelta(seconds=instant.timestamp() % row.every)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_schedule SET next_at = %s WHERE name = %s", [instant, row.name]
        )
    return instant


def let_wait(row: Schedule, since: timedelta) -> None:
    """Let a schedule wait so long for a worker that plans it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_schedule SET next_at = '-infinity', plan_from = %s WHERE name = %s",
            [datetime.now(UTC) - since, row.name],
        )


def fire(row: Schedule) -> ScheduleTurn:
    """Take one turn, and read the row again."""
    turn = fire_due()
    row.refresh_from_db()
    return turn


def outcomes(name: str = "each hour") -> list[str]:
    """Return what became of the occurrences of a schedule, in order."""
    rows = Occurrence.objects.filter(schedule=name).order_by("scheduled_for")
    return list(rows.values_list("outcome", flat=True))


def jobs_of(name: str = "each hour") -> list[Job]:
    """Return the jobs of a schedule, the oldest first."""
    return list(Job.objects.filter(schedule=name).order_by("id"))


@contextmanager
def declaring_anew() -> Iterator[None]:
    """Let what is declared within be forgotten after it, and what was before for as long."""
    before = dict(declaring._declared)
    declaring._declared.clear()
    try:
        yield
    finally:
        declaring._declared.clear()
        declaring._declared.update(before)
