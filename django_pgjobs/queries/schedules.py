"""Statements on schedules and their occurrences."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from django_pgjobs.queries.cursor import Cursor, execute, fetch

# An active schedule that was due, or to be planned, longer ago is late: no worker took it.
LATE_SECONDS = 120.0
# How many broken schedules are tried again at a time.
MAX_BROKEN = 100


class ScheduleRow(NamedTuple):
    """A row of pgjobs_schedule as it is: nothing of it is known to make sense.

    *args* and *kwargs* are JSON; *every*, *jitter* and *grace* seconds. *next_at* None: to be
    planned, by what comes from *plan_from* on, None: from *now* on. *now* is what counts as that,
    *read_at* the server's time.
    """

    name: str
    task_path: str
    args: str
    kwargs: str
    cron: str | None
    every: float | None
    timezone: str
    skipped_time: str | None
    repeated_time: str | None
    starts_at: datetime | None
    ends_at: datetime | None
    except_dates: list[str]
    max_runs: int | None
    jitter: float
    missed: str
    grace: float
    overlap: str
    runs: int
    last_at: datetime | None
    last_job_id: int | None
    error: str
    next_at: datetime | None
    plan_from: datetime | None
    now: datetime
    read_at: datetime


class OccurrenceRow(NamedTuple):
    """An occurrence as it is entered, and its outcome."""

    schedule: str
    scheduled_for: datetime
    outcome: str
    note: str = ""
    job_id: int | None = None


class ScheduleUpdate(NamedTuple):
    """What is written to a schedule after its turn; *plan_from* if it is broken."""

    name: str
    next_at: datetime | None
    plan_from: datetime | None
    last_at: datetime | None
    last_job_id: int | None
    runs: int
    error: str


class NextDue(NamedTuple):
    """In how many seconds a schedule is due, None without any; whether one was passed over.

    That one is due and somebody has locked it. *read_at* is the server's time.
    """

    wait: float | None
    is_passed_over: bool
    read_at: datetime


class EarlierSchedule(NamedTuple):
    """A schedule, when it was planned to be due next, and when it is."""

    name: str
    planned: datetime
    earlier: datetime


class TimingColumns(NamedTuple):
    """The columns that decide when a schedule is due; *every* is seconds."""

    cron: str | None
    every: float | None
    timezone: str


def take_due_schedules(
    cursor: Cursor,
    *,
    late: float,
    excluded: Collection[str],
    tasks: Sequence[str] | None = None,
    max_schedules: int,
    now: datetime | None = None,
) -> list[ScheduleRow]:
    """Lock and return schedules of *tasks* that are due for *late* seconds, or to be planned.

    *tasks* None: of all; *now* None is the server's time.
    """
    params = {
        "late": late,
        "excluded": list(excluded),
        "tasks": None if tasks is None else list(tasks),
        "max_schedules": max_schedules,
        "now": now,
    }
    return [ScheduleRow._make(row) for row in fetch(cursor, "take_due_schedules", params)]


def get_schedule_wait(
    cursor: Cursor, *, late: float, excluded: Collection[str], now: datetime | None = None
) -> float | None:
    """Return in how many seconds a schedule is due that is not yet *late*, None without any."""
    return look_ahead(cursor, late=late, excluded=excluded, tasks=None, now=now).wait


def look_ahead(
    cursor: Cursor,
    *,
    late: float,
    excluded: Collection[str],
    tasks: Sequence[str] | None,
    now: datetime | None = None,
) -> NextDue:
    """Return what comes after a turn, whose schedules are among the *excluded*."""
    params = {
        "late": late,
        "excluded": list(excluded),
        "tasks": None if tasks is None else list(tasks),
        "now": now,
    }
    [row] = fetch(cursor, "get_schedule_wait", params)
    return NextDue._make(row)


def enter_occurrences(cursor: Cursor, rows: Sequence[OccurrenceRow]) -> set[tuple[str, datetime]]:
    """Enter occurrences; return schedule and instant of those that were not there."""
    ordered = sorted(rows, key=lambda row: (row.schedule.encode(), row.scheduled_for))
    params = {
        "schedules": [row.schedule for row in ordered],
        "instants": [row.scheduled_for for row in ordered],
        "outcomes": [row.outcome for row in ordered],
        "notes": [row.note for row in ordered],
    }
    return {(name, instant) for name, instant in fetch(cursor, "enter_occurrences", params)}


def leave_occurrences(cursor: Cursor, rows: Sequence[OccurrenceRow]) -> None:
    """Take back occurrences that this transaction has entered."""
    params = {
        "schedules": [row.schedule for row in rows],
        "instants": [row.scheduled_for for row in rows],
    }
    execute(cursor, "leave_occurrences", params)


def reopen_occurrences(
    cursor: Cursor, schedule: str, instants: Sequence[datetime]
) -> set[tuple[str, datetime]]:
    """Let occurrences that were missed or failed be as if just entered; return which."""
    params = {"schedule": schedule, "instants": list(instants)}
    return {(name, instant) for name, instant in fetch(cursor, "reopen_occurrences", params)}


def note_occurrences(cursor: Cursor, rows: Sequence[OccurrenceRow]) -> None:
    """Note the outcomes of occurrences that were entered in this transaction."""
    params = {
        "schedules": [row.schedule for row in rows],
        "instants": [row.scheduled_for for row in rows],
        "outcomes": [row.outcome for row in rows],
        "notes": [row.note for row in rows],
        "job_ids": [row.job_id for row in rows],
    }
    execute(cursor, "note_occurrences", params)


def mark_scheduled_jobs(cursor: Cursor, rows: Sequence[OccurrenceRow]) -> None:
    """Write into jobs that this transaction has enqueued their schedule and occurrence."""
    params = {
        "ids": [row.job_id for row in rows],
        "schedules": [row.schedule for row in rows],
        "instants": [row.scheduled_for for row in rows],
    }
    execute(cursor, "mark_scheduled_jobs", params)


def list_unfinished(cursor: Cursor, schedules: Sequence[str]) -> list[tuple[str, int]]:
    """Return schedule and id of the jobs of *schedules* that have not finished."""
    return fetch(cursor, "list_unfinished_of_schedules", {"schedules": list(schedules)})


def write_schedules(cursor: Cursor, rows: Sequence[ScheduleUpdate]) -> None:
    """Write what has changed of schedules that are locked."""
    params = {
        "names": [row.name for row in rows],
        "next_ats": [row.next_at for row in rows],
        "plan_froms": [row.plan_from for row in rows],
        "last_ats": [row.last_at for row in rows],
        "last_job_ids": [row.last_job_id for row in rows],
        "runs": [row.runs for row in rows],
        "errors": [row.error for row in rows],
    }
    execute(cursor, "write_schedules", params)


def retry_broken(cursor: Cursor, tasks: Sequence[str]) -> None:
    """Let some broken schedules of *tasks* be planned again."""
    params = {"tasks": list(tasks), "max_schedules": MAX_BROKEN}
    execute(cursor, "retry_broken_schedules", params)


def list_planned(
    cursor: Cursor, tasks: Sequence[str], *, after: str, max_schedules: int
) -> list[ScheduleRow]:
    """Return schedules of *tasks* that are not due yet, after a name and in order of names."""
    params = {"tasks": list(tasks), "after": after, "max_schedules": max_schedules}
    return [ScheduleRow._make(row) for row in fetch(cursor, "list_planned_schedules", params)]


def bring_forward(cursor: Cursor, rows: Sequence[EarlierSchedule]) -> list[str]:
    """Let schedules be due earlier, if they are planned as they were; return their names."""
    params = {
        "names": [row.name for row in rows],
        "planned": [row.planned for row in rows],
        "earlier": [row.earlier for row in rows],
    }
    return [name for (name,) in fetch(cursor, "bring_schedules_forward", params)]


def list_undeclared(cursor: Cursor) -> list[str]:
    """Return the names of schedules of code that no live worker declares."""
    return [name for (name,) in fetch(cursor, "list_undeclared_schedules", {})]


def retire_schedules(cursor: Cursor, names: Collection[str]) -> list[str]:
    """Retire schedules; return the names of those that were not retired."""
    return [name for (name,) in fetch(cursor, "retire_schedules", {"names": list(names)})]


def get_when(cursor: Cursor, name: str) -> TimingColumns | None:
    """Return when a schedule is due, None if there is none."""
    rows = fetch(cursor, "get_when", {"name": name})
    return TimingColumns._make(rows[0]) if rows else None


def get_now(cursor: Cursor) -> datetime:
    """Return the server's time."""
    [(now,)] = fetch(cursor, "get_now", {})
    return cast(datetime, now)


def prune_occurrences(cursor: Cursor, *, retention: float, max_occurrences: int) -> int:
    """Delete occurrences entered *retention* seconds ago or before; return how many."""
    params = {"retention": retention, "max_occurrences": max_occurrences}
    execute(cursor, "prune_occurrences", params)
    return cursor.rowcount
