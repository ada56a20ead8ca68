"""Schedules declared in code: `schedule(task, ...)` and `@task(schedule=...)`.

A declaration is checked at once and kept in this process; a worker writes it into the table when
it starts (`schedules.syncing`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from typing import Any, TypedDict, Unpack

from django.core.exceptions import ImproperlyConfigured
from django.utils.timezone import get_default_timezone_name

from django_pgjobs.compat import AnyTask, InvalidTask
from django_pgjobs.conf import Conf, get_conf
from django_pgjobs.declaring.option_names import unknown_options
from django_pgjobs.declaring.registry import (
    find_in_module,
    find_task,
    is_discovered,
    is_task,
    list_task_paths,
)
from django_pgjobs.declaring.schedule_mistakes import find_mistakes
from django_pgjobs.declaring.signatures import check_signature
from django_pgjobs.occurrences.rule import Rule
from django_pgjobs.values.bounds import COUNT, MAX_SCHEDULE_NAME_BYTES, is_count
from django_pgjobs.values.given import remedy_for_number
from django_pgjobs.values.payload import encode_value, fits_column

LONGEST_JITTER = timedelta(days=1)
# What the column holds.
MISSED = ("latest", "skip", "all")
OVERLAPS = ("allow", "skip", "queue", "cancel")


@dataclass(frozen=True, kw_only=True)
class DeclaredSchedule:
    """A schedule as code declares it."""

    name: str
    task: AnyTask = field(repr=False)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rule: Rule
    jitter: timedelta = timedelta()
    missed: str = "latest"
    grace: timedelta = timedelta(days=1)
    overlap: str = "allow"
    max_runs: int | None = None

    def columns(self) -> dict[str, Any]:
        """Return the columns of its row; instants as text, so that JSON can hold all."""
        rule = self.rule
        return {
            "task_path": self.task.module_path,
            "args": list(self.args),
            "kwargs": dict(self.kwargs),
            "cron": rule.cron,
            "every": None if rule.every is None else rule.every.total_seconds(),
            "timezone": rule.timezone,
            "skipped_time": rule.skipped_time,
            "repeated_time": rule.repeated_time,
            "starts_at": None if rule.starts is None else rule.starts.isoformat(),
            "ends_at": None if rule.ends is None else rule.ends.isoformat(),
            "except_dates": [day.isoformat() for day in rule.except_dates],
            "max_runs": self.max_runs,
            "jitter": self.jitter.total_seconds(),
            "missed": self.missed,
            "grace": self.grace.total_seconds(),
            "overlap": self.overlap,
        }


# What was declared in this process, by name.
_declared: dict[str, DeclaredSchedule] = {}


def declared_schedules() -> dict[str, DeclaredSchedule]:
    """Return what was declared in this process, by name."""
    return dict(sorted(_declared.items()))


class ScheduleOptions(TypedDict, total=False):
    """The options of `schedule()`."""

    cron: str
    every: timedelta
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    timezone: str
    skipped_time: str
    repeated_time: str
    starts: datetime
    ends: datetime
    except_dates: Iterable[date]
    max_runs: int
    jitter: timedelta
    missed: str
    grace: timedelta
    overlap: str


OF_RULE = frozenset(each.name for each in fields(Rule))


def schedule(task: AnyTask, **options: Unpack[ScheduleOptions]) -> DeclaredSchedule:
    """Enqueue jobs of *task* by themselves, at the times of a cron expression or every so often.

    Declare it where the task is, at import: a worker writes the schedules of its code into the
    table when it starts, so nothing is sent here. *name* (the task's path) tells two schedules of
    a task apart. Jobs get *args* and *kwargs*. *cron* has five fields, or six with the seconds
    first, in *timezone* (the project's `TIME_ZONE`); see `Rule` for *every*, *starts*, *ends*,
    *except_dates*, and for *skipped_time* and *repeated_time*. After *max_runs* it ends.

    *missed* occurrences, because no worker ran for a minute: the "latest" (default) is made up
    for, unless it is older than *grace* (a day); "all" within *grace* are; "skip" them. *overlap*,
    while an earlier job has not finished: "allow" (default), "skip" the occurrence, "queue" (one
    runs after the other), "cancel" the earlier. A job starts up to *jitter* later than its
    occurrence.

    Raise InvalidTask if anything of it is wrong, so that the import fails.
    """
    label = getattr(task, "module_path", repr(task))
    try:
        declared = _checked(task, {key: v for key, v in options.items() if v is not None})
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"schedule of {label}: {error}") from None
    known = _declared.get(declared.name)
    # Reloading a module declares its task and its schedules again.
    is_twice = known is not None and known.task is task and known != declared
    if known is not None and (is_twice or known.task.module_path != task.module_path):
        raise InvalidTask(
            f"schedule of {label}: expected a name of its own, got {declared.name!r}, which is "
            f"that of a schedule of {known.task.module_path}. Give it another name=..."
        )
    _declared[declared.name] = declared
    return declared


def schedule_of_task(task: AnyTask, given: Any) -> None:
    """Declare what `@task(schedule=...)` says: cron, an interval, or options of `schedule()`.

    Raise InvalidTask if it is none of these.
    """
    if isinstance(given, str):
        schedule(task, cron=given)
    elif isinstance(given, timedelta):
        schedule(task, every=given)
    elif isinstance(given, Mapping):
        try:
            schedule(task, **given)
        except TypeError as error:
            raise InvalidTask(f"@task option schedule: {error}") from None
    else:
        raise InvalidTask(
            "@task expected schedule to be a cron expression, a timedelta, or a dict of options "
            f"of schedule(), got {given!r}."
        )


def _checked(task: AnyTask, given: dict[str, Any]) -> DeclaredSchedule:
    if not is_task(task):
        raise TypeError(f"expected a task, got {task!r}.")
    _check_is_as_declared(task)
    unknown = sorted(given.keys() - ScheduleOptions.__annotations__.keys())
    of_task = sorted({each.name for each in fields(task)} & set(unknown))
    if of_task:
        raise TypeError(
            f"{of_task[0]} is the task's: jobs of a schedule have the options of their task. "
            f"Give it to @task, or declare a second task for {', '.join(of_task)}."
        )
    if unknown:
        raise TypeError(unknown_options(unknown, ScheduleOptions.__annotations__))
    given = {"timezone": get_default_timezone_name(), "name": task.module_path, **given}
    args, kwargs = given.get("args", ()), given.get("kwargs", {})
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise TypeError(f"expected args to be a list, got {args!r}.")
    if not isinstance(kwargs, Mapping):
        raise TypeError(f"expected kwargs to be a dict, got {kwargs!r}.")
    for problem in find_mistakes(given):
        raise ValueError(problem)
    rule = Rule(**{name: given.pop(name) for name in OF_RULE & given.keys()})
    declared = DeclaredSchedule(
        **{**given, "args": tuple(args), "kwargs": dict(kwargs)}, task=task, rule=rule
    )
    for problem in find_problems(declared):
        raise ValueError(problem)
    check_arguments(task, declared.args, declared.kwargs)
    return declared


def _check_is_as_declared(task: AnyTask) -> None:
    """Raise ValueError for a copy that `using()` made: a row names the task, not its options."""
    module_name, _, name = task.module_path.rpartition(".")
    found = find_in_module(module_name, [name])
    # While a module is reloaded, its former contents are still there.
    if not is_task(found) or found.func is not task.func:
        return
    options = [each.name for each in fields(found) if each.compare]
    other = [each for each in options if getattr(found, each) != getattr(task, each, None)]
    if other:
        raise ValueError(
            f"expected the task as it is declared, got one with another {', '.join(other)}: jobs "
            "of a schedule have the options of their task. Declare a second task for these."
        )


def check_arguments(task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError if no job could have these arguments."""
    check_signature(task, args, kwargs)
    limit = _largest_payload()
    texts = [
        encode_value(list(args), name="args", max_bytes=limit),
        encode_value(dict(kwargs), name="kwargs", max_bytes=limit),
    ]
    # A restart would take this for a change.
    if [json.loads(text) for text in texts] != [list(args), dict(kwargs)]:
        raise ValueError("expected arguments that JSON gives back as they are: lists, no tuples.")


def _largest_payload() -> int:
    """Return the setting, or its default if the settings are wrong: a check tells of that."""
    try:
        return get_conf().MAX_PAYLOAD_BYTES
    except ImproperlyConfigured:
        return Conf.MAX_PAYLOAD_BYTES


def schedulable_paths() -> list[str]:
    """Return the paths of the tasks that people may schedule, if they are loaded; loads nothing."""
    if not is_discovered():
        return []
    return [path for path in list_task_paths() if getattr(find_task(path), "schedulable", False)]


def find_problems(schedule: Any) -> Iterator[str]:
    """Yield what is wrong with the policies of a schedule; *schedule* may be a row as well."""
    name = schedule.name
    if not fits_column(name, MAX_SCHEDULE_NAME_BYTES) or "\n" in name:
        yield f"expected name to be a line of up to {MAX_SCHEDULE_NAME_BYTES} bytes, got {name!r}."
    for option, allowed in (("missed", MISSED), ("overlap", OVERLAPS)):
        given = getattr(schedule, option)
        if given not in allowed:
            yield f"expected {option} to be one of {', '.join(allowed)}, got {given!r}."
    count = schedule.max_runs
    if count is not None and not is_count(count):
        yield f"expected max_runs to be {COUNT}, got {count!r}."
    jitter, grace = schedule.jitter, schedule.grace
    if not isinstance(jitter, timedelta) or not timedelta() <= jitter <= LONGEST_JITTER:
        said = f"expected jitter to be a timedelta up to a day, got {jitter!r}."
        yield said + remedy_for_number(jitter)
    if not isinstance(grace, timedelta) or grace < timedelta():
        said = f"expected grace to be a timedelta of 0 or more, got {grace!r}."
        yield said + remedy_for_number(grace)
    yield from find_task_problems(schedule)


def find_task_problems(schedule: Any) -> Iterator[str]:
    """Yield why the task cannot have the policies, as it is declared in this process."""
    if schedule.overlap == "queue" and getattr(schedule.task, "concurrency_key", None) is not None:
        yield (
            'expected another overlap than "queue": the task has a concurrency key, in whose order '
            "its jobs run."
        )
    if schedule.overlap == "queue" and not hasattr(schedule.task, "concurrency_key"):
        yield 'expected another overlap than "queue": it needs a task of django_pgjobs.'
