"""Assertions about the jobs that wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.signatures import named_arguments
from django_pgjobs.enqueueing.columns import make_line
from django_pgjobs.models import Job
from django_pgjobs.queries.database import rows_of
from django_pgjobs.status import JobStatus

# Jobs that a message names.
MAX_NAMED = 10


def assert_enqueued(task: AnyTask, *args: Any, **kwargs: Any) -> Job:
    """Return the newest waiting job of a task with these arguments; without any, of any arguments.

    Arguments are compared as a worker would get them: by position or by name, defaults filled in.
    Raise AssertionError, which names the jobs that do wait, if there is none; TypeError or
    ValueError if the task could not be enqueued with these arguments.
    """
    for job in _waiting(task, args, kwargs):
        return job
    raise AssertionError(
        f"expected a waiting job {_shown(task.module_path, args, kwargs)}, {_told_of_waiting()}"
    )


def assert_not_enqueued(task: AnyTask, *args: Any, **kwargs: Any) -> None:
    """Raise AssertionError if `assert_enqueued` would return a job."""
    for job in _waiting(task, args, kwargs):
        said = _shown(job.task_path, job.args, job.kwargs)
        raise AssertionError(f"expected no such waiting job, got job {job.pk}: {said}.")


def _waiting(task: AnyTask, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Job]:
    """Yield the waiting jobs of the task that have the arguments, the newest first."""
    line = make_line(task, args, kwargs) if args or kwargs else None
    wanted = line and named_arguments(task, json.loads(line.args), json.loads(line.kwargs))
    found = rows_of(Job).filter(status=JobStatus.READY, task_path=task.module_path)
    for job in found.order_by("-pk"):
        if wanted is None or _has(job, task, wanted):
            yield job


def _has(job: Job, task: AnyTask, wanted: dict[str, Any]) -> bool:
    try:
        return named_arguments(task, job.args, job.kwargs) == wanted
    except TypeError:  # of a row that the task does not take
        return False


def _told_of_waiting() -> str:
    waiting = list(rows_of(Job).filter(status=JobStatus.READY).order_by("-pk")[: MAX_NAMED + 1])
    if not waiting:
        return "no job waits at all."
    lines = [f"  {_shown(job.task_path, job.args, job.kwargs)}" for job in waiting[:MAX_NAMED]]
    more = ["  ..."] if len(waiting) > MAX_NAMED else []
    return "\n".join(["these wait:", *lines, *more])


def _shown(path: str, args: Any, kwargs: Any) -> str:
    given = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{path}({', '.join(given) or '...'})"
