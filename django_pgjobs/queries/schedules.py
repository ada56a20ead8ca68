"""Statements on schedules and their occurrences."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from django_pgjobs.queries.cursor import Cursor, execute, fetch


class ScheduleRow(NamedTuple):
    """A row of pgjobs_schedule as it is: nothing of it is known to make sense.

    *args* and *kwargs* are JSON; *every*, *jitter* and *grace* seconds. *next_at* None: to be
    planned. *now* is what counts as that, *read_at* the server's time.
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
    now: datetime
    read_at: datetime


class OccurrenceRow(NamedTuple):
    """An occurrence as it is entered, and what became of it."""

    schedule: str
    scheduled_for: datetime
    outcome: str
    note: str = ""
    job_id: int | None = None


class Written(NamedTuple):
    """What is written of a schedule after its turn."""

    name: str
    next_at: datetime | None
    last_at: datetime | None
    last_job_id: int | None
    runs: int
    error: str


class When(NamedTuple):
    """What of a schedule says when it is due; *every* is seconds."""

    cron: str | None
    every: float | None
    timezone: str


def take_due_schedules(
    cursor: Cursor,
    *,
    late: float,
    excluded: Collection[str],
    max_schedules: int,
    now: datetime | None = None,
) -> list[ScheduleRow]:
    """Lock and return schedules that are due for *late* seconds, or to be planned.

    *now* None is the server's time.
    """
    params = {"late": late, "excluded": list(excluded), "max_schedules": max_schedules, "now": now}
    return [ScheduleRow._make(row) for row in fetch(cursor, "take_due_schedules", params)]


def get_schedule_wait(
    cursor: Cursor, *, late: float, excluded: Collection[str], now: datetime | None = None
) -> float | None:
    """Return in how many seconds a schedule is due that is not yet *late*, None without any."""
    params = {"late": late, "excluded": list(excluded), "now": now}
    [(seconds,)] = fetch(cursor, "get_schedule_wait", params)
    return None if seconds is None else float(seconds)


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


def note_occurrences(cursor: Cursor, rows: Sequence[OccurrenceRow]) -> None:
    """Note what became of occurrences that were entered in this transaction."""
    params = {
        "schedules": [row.schedule for row in rows],
        "instants": [row.scheduled_for for row in rows],
        "outcomes": [row.outcome for row in rows],
        "notes": [row.note for row in rows],
        "job_ids": [row.job_id for row in rows],
    }
    execute(cursor, "note_occurrences", params)


def mark_scheduled_jobs(
    cursor: Cursor, rows: Sequence[OccurrenceRow], *, since: datetime
) -> set[int]:
    """Write into the jobs enqueued *since* then what they are for; return which those are."""
    params = {
        "since": since,
        "ids": [row.job_id for row in rows],
        "schedules": [row.schedule for row in rows],
        "instants": [row.scheduled_for for row in rows],
    }
    return {job_id for (job_id,) in fetch(cursor, "mark_scheduled_jobs", params)}


def list_unfinished(cursor: Cursor, schedules: Sequence[str]) -> list[tuple[str, int]]:
    """Return schedule and id of the jobs of *schedules* that have not finished."""
    return fetch(cursor, "list_unfinished_of_schedules", {"schedules": list(schedules)})


def write_schedules(cursor: Cursor, rows: Sequence[Written]) -> None:
    """Write what has changed of schedules that are locked."""
    params = {
        "names": [row.name for row in rows],
        "next_ats": [row.next_at for row in rows],
        "last_ats": [row.last_at for row in rows],
        "last_job_ids": [row.last_job_id for row in rows],
        "runs": [row.runs for row in rows],
        "errors": [row.error for row in rows],
    }
    execute(cursor, "write_schedules", params)


def list_orphans(cursor: Cursor) -> list[str]:
    """Return the names of schedules of code that no live worker declares."""
    return [name for (name,) in fetch(cursor, "list_orphan_schedules", {})]


def retire_schedules(cursor: Cursor, names: Collection[str]) -> list[str]:
    """Retire schedules; return the names of those that were not retired."""
    return [name for (name,) in fetch(cursor, "retire_schedules", {"names": list(names)})]


def get_when(cursor: Cursor, name: str) -> When | None:
    """Return when a schedule is due, None if there is none."""
    rows = fetch(cursor, "get_when", {"name": name})
    return When._make(rows[0]) if rows else None


def get_now(cursor: Cursor) -> datetime:
    """Return the server's time."""
    [(now,)] = fetch(cursor, "get_now", {})
    return cast(datetime, now)


def prune_occurrences(cursor: Cursor, *, retention: float, max_occurrences: int) -> int:
    """Delete occurrences entered *retention* seconds ago or before; return how many."""
    params = {"retention": retention, "max_occurrences": max_occurrences}
    execute(cursor, "prune_occurrences", params)
    return cursor.rowcount
