"""Assertions about the jobs that wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Case, When

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.registry import find_task, is_task
from django_pgjobs.declaring.signatures import named_arguments
from django_pgjobs.enqueueing.columns import make_line
from django_pgjobs.models import Job
from django_pgjobs.queries.database import rows_of
from django_pgjobs.status import JobStatus
from django_pgjobs.values.moments import aware, given_in_words

# Jobs that a message names.
MAX_NAMED = 10
# What is compared of a copy, as every option that Django's own using() takes; run_after if given.
COMPARED = ("queue_name", "priority", "backend")


def assert_enqueued(task: AnyTask, *args: Any, **kwargs: Any) -> Job:
    """Return the newest waiting job of a task with these arguments; without any, of any arguments.

    Arguments are compared as a worker would get them: by position or by name, defaults filled in.
    Of a copy that `task.using()` made also queue_name, priority and backend are compared, and
    run_after if it has one.

    Raise AssertionError, which names the jobs that do wait, if there is none; TypeError or
    ValueError if the task could not be enqueued with these arguments, or has other options that
    nothing compares.
    """
    wanted = _wanted("assert_enqueued", task, args, kwargs)
    for job in _waiting(wanted):
        return job
    said = _shown(task.module_path, args, kwargs, wanted.options)
    raise AssertionError(f"expected a waiting job {said}, {_told_of_waiting(wanted)}")


def assert_not_enqueued(task: AnyTask, *args: Any, **kwargs: Any) -> None:
    """Raise AssertionError if `assert_enqueued` would return a job."""
    wanted = _wanted("assert_not_enqueued", task, args, kwargs)
    for job in _waiting(wanted):
        said = _shown_job(job, wanted)
        raise AssertionError(f"expected no such waiting job, got job {job.pk}: {said}.")


class _Wanted(NamedTuple):
    """The job that is looked for; *arguments* by name, None: any."""

    task: AnyTask
    arguments: dict[str, Any] | None
    options: dict[str, Any]


def _wanted(function: str, task: AnyTask, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Wanted:
    if not is_task(task):
        raise TypeError(
            f"{function}() expected a task, as @task makes it of a function, got {task!r:.80}."
        )
    options = _options_of(function, task)
    if not args and not kwargs:
        return _Wanted(task, None, options)
    line = make_line(task, args, kwargs)
    arguments = named_arguments(task, json.loads(line.args), json.loads(line.kwargs))
    return _Wanted(task, arguments, options)


def _options_of(function: str, task: AnyTask) -> dict[str, Any]:
    """Return what is compared beside the arguments; raise TypeError for what cannot be."""
    declared = find_task(task.module_path)
    if task is declared:
        return {}
    others = {field.name for field in fields(task) if field.compare} - {*COMPARED, "run_after"}
    changed = sorted(
        name for name in others if getattr(task, name) != getattr(declared, name, None)
    )
    if changed:
        raise TypeError(
            f"{function}() compares queue_name, priority, backend and run_after of what using() "
            f"changed, not {', '.join(changed)}. Look at the job that assert_enqueued() returns."
        )
    options = {name: getattr(task, name) for name in COMPARED}
    given: Any = task.run_after
    if given is not None:
        options["run_after"] = aware(given) if isinstance(given, datetime) else given
    return options


def _waiting(wanted: _Wanted) -> Iterator[Job]:
    """Yield the waiting jobs that are as wanted, the newest first."""
    found = rows_of(Job).filter(status=JobStatus.READY, task_path=wanted.task.module_path)
    for job in found.order_by("-pk"):
        if _has_arguments(job, wanted) and _options_in(job, wanted) == wanted.options:
            yield job


def _has_arguments(job: Job, wanted: _Wanted) -> bool:
    if wanted.arguments is None:
        return True
    try:
        return named_arguments(wanted.task, job.args, job.kwargs) == wanted.arguments
    except TypeError:  # of a row that the task does not take
        return False


def _options_in(job: Job, wanted: _Wanted) -> dict[str, Any]:
    """Return what a job has for the options that are compared."""
    options = {name: getattr(job, name) for name in wanted.options}
    run_after = wanted.options.get("run_after")
    if run_after is not None and job.run_after is not None:
        is_delay = isinstance(run_after, timedelta)
        at = aware(job.run_after)
        options["run_after"] = at - aware(job.enqueued_at) if is_delay else at
    return options


def _told_of_waiting(wanted: _Wanted) -> str:
    """Return which jobs wait, those of the task first, and the newest first."""
    is_other = Case(When(task_path=wanted.task.module_path, then=0), default=1)
    found = rows_of(Job).filter(status=JobStatus.READY).order_by(is_other, "-pk")
    waiting = list(found[: MAX_NAMED + 1])
    if not waiting:
        return "no job waits at all."
    lines = [f"  {_shown_job(job, wanted)}" for job in waiting[:MAX_NAMED]]
    more = ["  ..."] if len(waiting) > MAX_NAMED else []
    return "\n".join(["these wait:", *lines, *more])


def _shown_job(job: Job, wanted: _Wanted) -> str:
    return _shown(job.task_path, job.args, job.kwargs, _options_in(job, wanted))


def _shown(path: str, args: Any, kwargs: Any, options: dict[str, Any]) -> str:
    given = [*map(repr, args), *_named(kwargs)]
    end = f" with {', '.join(_named(options))}" if options else ""
    return f"{path}({', '.join(given) or '...'}){end}"


def _named(values: dict[str, Any]) -> list[str]:
    return [f"{name}={given_in_words(value)}" for name, value in values.items()]
