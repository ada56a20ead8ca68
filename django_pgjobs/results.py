"""Jobs as `django.tasks` sees them: TaskResult, TaskError, and the task of a stored row."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from types import FunctionType
from typing import Any, cast

from django.conf import settings
from django.utils import timezone

from django_pgjobs.compat import AnyTask, TaskError, TaskResultStatus
from django_pgjobs.declaring.attempts import attempts_of
from django_pgjobs.declaring.job_result import JobResult
from django_pgjobs.declaring.registry import (
    discover_tasks_once,
    find_in_module,
    find_task,
    is_class,
)
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.exceptions import PayloadError, UnknownTask
from django_pgjobs.queries.jobs import JobRow
from django_pgjobs.status import JobStatus
from django_pgjobs.tracing.headers import without_headers
from django_pgjobs.values.payload import decode_arguments, decode_value, shorten

STATUSES = {
    JobStatus.READY: TaskResultStatus.READY,
    JobStatus.RUNNING: TaskResultStatus.RUNNING,
    JobStatus.SUCCESSFUL: TaskResultStatus.SUCCESSFUL,
    JobStatus.FAILED: TaskResultStatus.FAILED,
    JobStatus.CANCELLED: TaskResultStatus.FAILED,
}

# A path of a class that is longer was not written by a worker.
MAX_PATH = 2_000


def exception_path(exception: type[BaseException]) -> str:
    """Return the dotted path to store for an exception class, as `shop.models.Order.DoesNotExist`.

    Readers look up what is stored here (`TaskError.exception_class`), so only the path of a
    class that can be found in a loaded module is, also within other classes; for one that was
    made in a function it is the path of its nearest base that can.
    """
    for candidate in exception.__mro__:
        names = candidate.__qualname__.split(".")
        if find_in_module(candidate.__module__, names) is candidate:
            return f"{candidate.__module__}.{candidate.__qualname__}"
    return "builtins.BaseException"


def find_exception(path: str) -> type[BaseException]:
    """Return the exception class that `exception_path` gave this path; import nothing for it.

    Raise ImportError if its module is not loaded, and ValueError if there is no such class in it.
    """
    names = path.split(".") if len(path) <= MAX_PATH else []
    is_loaded = False
    for count in range(len(names) - 1, 0, -1):
        module_name = ".".join(names[:count])
        found = find_in_module(module_name, names[count:])
        if is_class(found) and issubclass(found, BaseException):
            return cast(type[BaseException], found)
        # What follows the module may be within a class of it, or be a module of a package.
        is_direct = count == len(names) - 1
        is_within = not is_direct and is_class(find_in_module(module_name, [names[count]]))
        is_loaded |= module_name in sys.modules and (is_direct or is_within)
    if not is_loaded:
        raise ImportError(f"the module of {shorten(path)!r} is not loaded. Import it first.")
    raise ValueError(f"{shorten(path)!r} does not reference a valid exception.")


def local_time(instant: datetime | None) -> datetime | None:
    """Return *instant* as the project's USE_TZ has it: aware in UTC, or naive in local time."""
    if instant is None:
        return None
    if settings.USE_TZ:
        return instant.astimezone(UTC) if instant.tzinfo else timezone.make_aware(instant)
    if instant.tzinfo is None:
        return instant
    return timezone.make_naive(instant, timezone.get_default_timezone())


def task_of_row(row: JobRow, backend: str) -> AnyTask:
    """Return the task as it was enqueued, or a stand-in if this process does not have it."""
    declared = _find_or_discover(row.task_path)
    changes: dict[str, Any] = {
        "priority": row.priority,
        "queue_name": row.queue_name,
        "run_after": local_time(row.run_after),
        "backend": backend,
    }
    if isinstance(declared, Task):
        changes["timeout"] = row.timeout
        changes["correlation_id"] = row.correlation_id
        changes["tags"] = tuple(row.tags)
        if row.max_attempts not in (None, attempts_of(declared, backend)):
            changes["max_attempts"] = row.max_attempts
        metadata = decode_or_none(row.metadata)
        if isinstance(metadata, dict):
            metadata = without_headers(metadata)
            if metadata != declared.metadata:
                changes["metadata"] = metadata
    return replace_unchecked(declared, changes)


def decode_or_none(text: str | None) -> Any:
    """Return the value of stored JSON text, None if there is none that Python can hold."""
    try:
        return None if text is None else decode_value(text)
    except ValueError:
        return None


def _find_or_discover(path: str) -> AnyTask:
    try:
        return find_task(path)
    except UnknownTask:
        discover_tasks_once()
    try:
        return find_task(path)
    except UnknownTask:
        return stand_in(path)


def replace_unchecked(task: AnyTask, changes: Mapping[str, Any]) -> AnyTask:
    """Return *task* with other fields, without validation: the settings may have changed."""
    copied: AnyTask = object.__new__(type(task))
    for field in fields(task):
        value = changes[field.name] if field.name in changes else getattr(task, field.name)
        object.__setattr__(copied, field.name, value)
    return copied


def stand_in(path: str) -> AnyTask:
    """Return a task of this path that raises UnknownTask when it is called."""

    def unknown(*args: Any, **kwargs: Any) -> None:
        raise UnknownTask(f"no task {path} is declared in this process.")

    function = FunctionType(unknown.__code__, unknown.__globals__, closure=unknown.__closure__)
    function.__module__, _, function.__qualname__ = path.rpartition(".")
    function.__name__ = function.__qualname__
    made: AnyTask = object.__new__(Task)
    for field in fields(Task):
        default = field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        object.__setattr__(made, field.name, function if field.name == "func" else default)
    return made


def result_of_row(row: JobRow, backend: str) -> JobResult:
    """Return the result of a stored job; values that cannot be decoded show as empty."""
    try:
        args, kwargs = decode_arguments(row.args, row.kwargs)
    except PayloadError:
        args, kwargs = [], {}
    errors = decode_or_none(row.errors)
    result = JobResult(
        task=task_of_row(row, backend),
        id=str(row.id),
        status=STATUSES.get(JobStatus(row.status), TaskResultStatus.FAILED),
        enqueued_at=local_time(row.enqueued_at),
        started_at=local_time(row.started_at),
        last_attempted_at=local_time(row.last_attempted_at),
        finished_at=local_time(row.finished_at),
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=[task_error(entry) for entry in errors] if isinstance(errors, list) else [],
        worker_ids=row.worker_ids,
    )
    object.__setattr__(result, "_return_value", decode_or_none(row.result))
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredError(TaskError):  # type: ignore[misc]
    """A recorded error; its class is looked up, not imported: the path came from a row."""

    @property
    def exception_class(self) -> type[BaseException]:
        return find_exception(self.exception_class_path)


def task_error(entry: object) -> TaskError:
    """Return one entry of a job's list of errors as django.tasks has it."""
    if not isinstance(entry, Mapping):
        entry = {"message": entry}
    return StoredError(
        exception_class_path=str(entry.get("exception_class", "")),
        traceback=str(entry.get("traceback") or entry.get("message", "")),
    )


def new_result(
    task: AnyTask,
    *,
    job_id: int,
    enqueued_at: datetime,
    args: Any,
    kwargs: Any,
) -> JobResult:
    """Return the result of a job that was just enqueued."""
    return JobResult(
        task=task,
        id=str(job_id),
        status=TaskResultStatus.READY,
        enqueued_at=local_time(enqueued_at),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )
