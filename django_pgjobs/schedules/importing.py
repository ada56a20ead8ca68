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


def import_rows(rows: Iterable[Any], columns_of: Callable[[Any], dict[str, Any]]) -> list[Imported]:
    """Return the import of each row; *columns_of* raises ValueError for one that cannot be ours."""
    return list(_imported(rows, columns_of))


def _imported(
    rows: Iterable[Any], columns_of: Callable[[Any], dict[str, Any]]
) -> Iterator[Imported]:
    for theirs in rows:
        name = str(theirs.name or f"{getattr(theirs, 'func', 'schedule')} {theirs.pk}")
        if getattr(theirs, "task", None) == CLEANUP:
            said = "not needed here: workers delete old jobs by themselves"
            yield Imported(name, None, said, is_wanted=False)
            continue
        try:
            row = Schedule(name=name, **columns_of(theirs))
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


def columns_of_celery_beat(theirs: Any) -> dict[str, Any]:
    """Return the columns of a `PeriodicTask`; raise ValueError if we have no equivalent."""
    columns: dict[str, Any] = {
        "task_path": theirs.task,
        "args": _parsed(theirs.args or "[]", json.loads),
        "kwargs": _parsed(theirs.kwargs or "{}", json.loads),
        "starts_at": theirs.start_time,
        "ends_at": theirs.expires,
        "max_runs": 1 if theirs.one_off else None,
    }
    if not theirs.enabled:
        columns |= {"paused_at": timezone.now(), "pause_reason": "not enabled where it came from"}
    if theirs.crontab is not None:
        return columns | _of_crontab(theirs.crontab)
    if theirs.interval is not None:
        every = timedelta(**{theirs.interval.period: theirs.interval.every})
        return columns | {"every": every.total_seconds()}
    if theirs.clocked is not None:
        return columns | _once(theirs.clocked.clocked_time)
    raise ValueError("it goes by the sun, which no schedule here does.")


def _of_crontab(crontab: Any) -> dict[str, Any]:
    fields = [
        str(getattr(crontab, name)).replace(" ", "")
        for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    ]
    if not fields[2].startswith("*") and not fields[4].startswith("*"):
        raise ValueError(
            "it names days of the month and of the week and means those that are both; here one "
            "is enough. Write the weekday as a check in the task."
        )
    return {"cron": " ".join(fields), "timezone": str(crontab.timezone)}


def columns_of_django_q(theirs: Any) -> dict[str, Any]:
    """Return the columns of a `Schedule` of django-q2; raise ValueError if we have no
    equivalent."""
    if theirs.repeats == 0:
        raise ValueError("it has ended: no repeats are left.")
    if theirs.next_run is None:
        raise ValueError("it has no next run, so it is never due.")
    columns = {
        "task_path": theirs.func,
        "args": _literal_args(theirs.args),
        "kwargs": _literal_kwargs(theirs.kwargs),
        "max_runs": theirs.repeats if theirs.repeats > 0 else None,
        "starts_at": theirs.next_run,
        "timezone": timezone.get_default_timezone_name(),
    }
    return columns | _django_q_rule(theirs, timezone.localtime(theirs.next_run))


def _django_q_rule(theirs: Any, first: datetime) -> dict[str, Any]:
    """Return what says when it is due; *first* is its next run by the project's clock."""
    kind, at = theirs.schedule_type, f"{first.minute} {first.hour}"
    if kind == "O":
        return _once(theirs.next_run)
    if kind == "C":
        return {"cron": theirs.cron}
    if kind in ("I", "H"):
        minutes = theirs.minutes if kind == "I" else 60
        return {"every": timedelta(minutes=minutes or 0).total_seconds()}
    if kind == "D":
        return {"cron": f"{at} * * *"}
    if kind == "W":
        return {"cron": f"{at} * * {first.isoweekday() % 7}"}
    if kind == "BW":
        return {"every": timedelta(days=14).total_seconds()}
    if kind not in DJANGO_Q_MONTHS:
        raise ValueError(f"its type {kind!r} is not known.")
    if first.day > LAST_SURE_DAY:
        raise ValueError("its day is not in every month. Make one by hand: L is the last day.")
    step = DJANGO_Q_MONTHS[kind]
    months = sorted((first.month - 1 + number) % 12 + 1 for number in range(0, 12, step))
    return {"cron": f"{at} {first.day} {','.join(map(str, months))} *"}


def _once(instant: datetime) -> dict[str, Any]:
    if instant <= datetime.now(UTC):
        raise ValueError(f"its one time is over: {instant}.")
    # Whatever becomes of it, there is no second one a day later.
    ends_at = instant + timedelta(seconds=1)
    return {"every": ONCE, "starts_at": instant, "ends_at": ends_at, "max_runs": 1}


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
