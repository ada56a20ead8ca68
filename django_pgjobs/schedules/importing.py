"""Schedules of other schedulers as rows of ours, or why one cannot be imported.

Pure, from rows with the columns of django-celery-beat 2.x and django-q2 1.x; their packages are
not needed for it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.utils import timezone

from django_pgjobs.declaring.registry import find_task
from django_pgjobs.declaring.schedule_mistakes import find_name_problems
from django_pgjobs.declaring.schedules import check_arguments
from django_pgjobs.exceptions import UnknownTask
from django_pgjobs.models.schedules import Schedule
from django_pgjobs.schedules.plans import policies_of, rule_of
from django_pgjobs.values.moments import aware

# A rule that is due once needs some interval; its first occurrence is at its start.
ONCE = timedelta(days=1).total_seconds()
# What deletes Celery's own results; its beat adds the row by itself.
CLEANUP = "celery.backend_cleanup"
# What rows of theirs say of each job.
OF_TASK = ("queue", "priority", "expire_seconds", "exchange", "routing_key", "cluster", "hook")
# Months between the runs of one that goes by months.
DJANGO_Q_MONTHS = {"M": 1, "BM": 2, "Q": 3, "Y": 12}
# The day of a month that every month has.
LAST_SURE_DAY = 28


class Imported(NamedTuple):
    """The import of one schedule: a row that is not saved yet, or why there is none."""

    name: str
    row: Schedule | None
    said: str = ""
    # What theirs says of its jobs, and ours does not: that is the task's.
    dropped: tuple[str, ...] = ()
    # False: there is none, and need not be.
    is_wanted: bool = True


def import_rows(rows: Iterable[Any], row_of: Callable[[Any], Schedule]) -> list[Imported]:
    """Return the import of each row; *row_of* raises ValueError for one that cannot be ours."""
    return list(_imported(rows, row_of))


def _imported(rows: Iterable[Any], row_of: Callable[[Any], Schedule]) -> Iterator[Imported]:
    for theirs in rows:
        name = str(theirs.name or f"{getattr(theirs, 'func', 'schedule')} {theirs.pk}")
        if getattr(theirs, "task", None) == CLEANUP:
            said = "not needed here: workers delete old jobs by themselves"
            yield Imported(name, None, said, is_wanted=False)
            continue
        try:
            row = row_of(theirs)
            row.name = name
            for problem in find_name_problems(name):
                raise ValueError(problem)
            task = find_task(row.task_path)
            rule_of(row)
            policies_of(row, task)
            check_arguments(task, row.args, row.kwargs)
        except (OverflowError, TypeError, UnknownTask, ValueError) as error:
            yield Imported(name, None, str(error))
        else:
            yield Imported(name, row, dropped=_dropped(theirs))


def _dropped(theirs: Any) -> tuple[str, ...]:
    given = {name: getattr(theirs, name, None) for name in OF_TASK}
    return tuple(
        f"{name} {value!r}" for name, value in given.items() if value is not None and value != ""
    )


def row_of_celery_beat(theirs: Any) -> Schedule:
    """Return what a `PeriodicTask` is here; raise ValueError if we have no equivalent."""
    row = Schedule(
        task_path=theirs.task,
        args=_parsed(theirs.args or "[]", json.loads),
        kwargs=_parsed(theirs.kwargs or "{}", json.loads),
        starts_at=theirs.start_time and aware(theirs.start_time),
        ends_at=theirs.expires and aware(theirs.expires),
        max_runs=1 if theirs.one_off else None,
    )
    if not theirs.enabled:
        row.paused_at, row.pause_reason = timezone.now(), "not enabled where it came from"
    if theirs.crontab is not None:
        row.cron, row.timezone = _cron_of(theirs.crontab), str(theirs.crontab.timezone)
    elif theirs.interval is not None:
        every = timedelta(**{theirs.interval.period: theirs.interval.every})
        row.every = every.total_seconds()
    elif theirs.clocked is not None:
        _be_due_once(row, aware(theirs.clocked.clocked_time))
    else:
        raise ValueError("it goes by the sun, which no schedule here does.")
    return row


def _cron_of(crontab: Any) -> str:
    fields = [
        str(getattr(crontab, name)).replace(" ", "")
        for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    ]
    if not fields[2].startswith("*") and not fields[4].startswith("*"):
        raise ValueError(
            "it names days of the month and of the week and means those that are both; here one "
            "is enough. Write the weekday as a check in the task."
        )
    return " ".join(fields)


def row_of_django_q(theirs: Any) -> Schedule:
    """Return what a `Schedule` of django-q2 is here; raise ValueError if we have no equivalent."""
    if theirs.repeats == 0:
        raise ValueError("it has ended: no repeats are left.")
    if theirs.next_run is None:
        raise ValueError("it has no next run, so it is never due.")
    next_run = aware(theirs.next_run)
    row = Schedule(
        task_path=theirs.func,
        args=_literal_args(theirs.args),
        kwargs=_literal_kwargs(theirs.kwargs),
        max_runs=theirs.repeats if theirs.repeats > 0 else None,
        starts_at=next_run,
        timezone=timezone.get_default_timezone_name(),
    )
    kind, first = theirs.schedule_type, timezone.localtime(next_run)
    if kind == "O":
        _be_due_once(row, next_run)
    elif kind in ("I", "H", "BW"):
        minutes = {"I": theirs.minutes, "H": 60, "BW": 14 * 24 * 60}[kind]
        row.every = timedelta(minutes=minutes or 0).total_seconds()
    else:
        row.cron = theirs.cron if kind == "C" else _cron_of_django_q(kind, first)
    return row


def _cron_of_django_q(kind: str, first: datetime) -> str:
    """Return the expression of a type; *first* is the next run by the project's clock."""
    at = f"{first.minute} {first.hour}"
    if kind == "D":
        return f"{at} * * *"
    if kind == "W":
        return f"{at} * * {first.isoweekday() % 7}"
    if kind not in DJANGO_Q_MONTHS:
        raise ValueError(f"its type {kind!r} is not known.")
    if first.day > LAST_SURE_DAY:
        raise ValueError("its day is not in every month. Make one by hand: L is the last day.")
    step = DJANGO_Q_MONTHS[kind]
    months = sorted((first.month - 1 + number) % 12 + 1 for number in range(0, 12, step))
    return f"{at} {first.day} {','.join(map(str, months))} *"


def _be_due_once(row: Schedule, instant: datetime) -> None:
    if instant <= datetime.now(UTC):
        raise ValueError(f"its one time is over: {instant}.")
    # Whatever becomes of it, there is no second one a day later.
    row.starts_at, row.ends_at = instant, instant + timedelta(seconds=1)
    row.every, row.max_runs = ONCE, 1


def _literal_args(text: str | None) -> list[Any]:
    """Return positional arguments that are written as in a call."""
    value = _parsed(text, ast.literal_eval) if text else ()
    return list(value) if isinstance(value, tuple) else [value]


def _literal_kwargs(text: str | None) -> dict[str, Any]:
    """Return keyword arguments that are written as in a call, or as a dict."""
    if not text:
        return {}
    if text.lstrip().startswith("{"):
        return dict(_parsed(text, ast.literal_eval))
    call = _parsed(f"f({text})", lambda given: ast.parse(given, mode="eval").body)
    is_call = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args
    if not is_call or any(each.arg is None for each in call.keywords):
        raise ValueError(_unreadable(text))
    return {each.arg: _parsed(each.value, ast.literal_eval) for each in call.keywords}


def _parsed(given: Any, parse: Callable[[Any], Any]) -> Any:
    try:
        return parse(given)
    # What is nested too deeply raises the last two.
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(_unreadable(given)) from None


def _unreadable(given: Any) -> str:
    return f"its arguments cannot be read: {str(given)[:100]!r}."
