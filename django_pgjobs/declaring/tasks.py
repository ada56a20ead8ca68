"""`@task` and what a task declares.

A task is a `django.tasks` Task with our options as further fields. All of them are checked when
the task is declared, and again by `.using()`: a mistake fails the import, not the first job.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Never, TypeGuard, overload

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from django_pgjobs.compat import AnyTask, InvalidTask, task_backends
from django_pgjobs.conf import DEFAULT_PRIORITY, DEFAULT_QUEUE, SERVER_PAYLOAD_BYTES
from django_pgjobs.declaring.calls import Call
from django_pgjobs.declaring.endings import find_end_problems
from django_pgjobs.declaring.job_result import JobResult
from django_pgjobs.declaring.keys import Key
from django_pgjobs.declaring.labels import find_label_problems
from django_pgjobs.declaring.option_names import OF_JOBS, TaskNames, check_names
from django_pgjobs.declaring.options import (
    find_control_problems,
    find_flag_problems,
    find_function_problems,
    find_timeout_problems,
)
from django_pgjobs.declaring.own_tasks import find_queue_problems, is_ours
from django_pgjobs.declaring.remote import find_remote_problems
from django_pgjobs.declaring.retries import DEFAULT_BACKOFF, Backoff, check_backoff
from django_pgjobs.declaring.schedules import schedule_of_task
from django_pgjobs.declaring.subjects import Subject, subject_of
from django_pgjobs.values.bounds import COUNT, is_count, is_number
from django_pgjobs.values.job_ids import job_ids_of
from django_pgjobs.values.payload import encode_value, quoted

Exceptions = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(TaskNames, AnyTask):
    """A module-level function that can be enqueued, and the options of its jobs.

    `max_attempts=None` stands for `PGJOBS["MAX_ATTEMPTS"]`, and for one attempt where django.tasks'
    own `@task` declared it (`attempts_of`). *max_losses* is the number of worker deaths after
    which a job fails (None: `PGJOBS["MAX_LOSSES"]`; 1: it is never run again after one); such
    attempts do not count towards *max_attempts*. *timeout* is seconds per attempt; a timedelta is
    kept in seconds.
    *retry_on* lists the exceptions that are retried (default: any Exception), *discard_on*
    those that fail the job at once; *discard_on* wins. *atomic* runs the task and its
    completion in one transaction. *resets_session=False* promises that the task leaves nothing
    in its database sessions: no setting, role, lock, temporary table. *correlation_id* (up
    to 256 bytes), *tags* (up to 64, of up to 256 bytes) and *metadata* are stored with the job for
    the project's own use.

    *concurrency_key*: jobs that share it run at most *concurrency_limit* (1) at a time, with 1
    in the order of their ids; *ordering* says whether one that waits for its retry blocks the
    later ones ("block") or not ("skip"). A limit without a key applies to the whole task.
    *rate_limit* names the limits that a start takes *rate_cost* tokens of. *unique_key*: at
    most one job has it, and *on_conflict* says what a second enqueue does (`merging`); *merge* how
    arguments are merged ("union", "append", "last", or a function). Each one that merges or
    replaces moves the due time, to *max_wait* (seconds) after the first at most. Keys are
    templates such as `"shop:{shop_id}"`, or functions of the arguments (`keys`).

    *expires*: no attempt begins later, and a job that waits then ends as cancelled; a length of
    time counts from `run_after`, or from the enqueue. *on_failure* is a task, the dotted path
    of one, or a call with arguments by name, that is enqueued when a job fails for good, in the
    same transaction, with the job's id and a text of its last error first. *schedulable*: people
    may make schedules of it in the admin, with arguments of their own. *remote*: workers over HTTP
    run it, and none of ours.
    """

    priority: int = 0
    backend: str = "default"
    queue_name: str = "default"
    run_after: datetime | timedelta | None = None  # type: ignore[assignment]
    takes_context: bool = False
    max_attempts: int | None = None
    backoff: Backoff = field(default=DEFAULT_BACKOFF, hash=False)
    timeout: float | None = None
    retry_on: Exceptions = (Exception,)
    discard_on: Exceptions = ()
    atomic: bool = False
    resets_session: bool = True
    correlation_id: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    concurrency_key: Key | None = None
    concurrency_limit: int | None = None
    ordering: str = "block"
    rate_limit: tuple[Key, ...] = ()
    rate_cost: int = 1
    unique_key: Key | None = None
    unique_until: str | None = None
    on_conflict: str = "return"
    merge: str | Callable[..., Any] | None = None
    max_wait: float | timedelta | None = None
    after: tuple[int, ...] = ()
    after_failure: str = "cancel"
    subject: Subject | None = None
    max_losses: int | None = None
    expires: datetime | timedelta | None = None
    on_failure: AnyTask | Call | str | None = field(default=None, hash=False)
    schedulable: bool = False
    remote: bool = False
    # Was it declared with our @task? The @task of django.tasks makes tasks of this class, too.
    is_ours: bool = field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        for name in ("retry_on", "discard_on"):
            value = getattr(self, name)
            is_one = isinstance(value, type | str) or not isinstance(value, Iterable)
            set_field(self, name, (value,) if is_one else tuple(value))
        if isinstance(self.tags, Iterable) and not isinstance(self.tags, str):
            set_field(self, "tags", tuple(self.tags))
        given = self.rate_limit
        is_one = isinstance(given, str | Mapping) or not isinstance(given, Iterable)
        set_field(self, "rate_limit", () if given is None else (given,) if is_one else tuple(given))
        if isinstance(self.timeout, timedelta):
            set_field(self, "timeout", self.timeout.total_seconds())
        if self.concurrency_limit is not None and self.concurrency_key is None:
            set_field(self, "concurrency_key", "task:{task}")
        if self.after != ():
            set_field(self, "after", _converted(self, "after", job_ids_of))
        if self.subject is not None:
            set_field(self, "subject", _converted(self, "subject", subject_of))
        check_options(self)
        AnyTask.__post_init__(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        correlation_id: str | None = None,
        tags: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        concurrency_key: Key | None = None,
        concurrency_limit: int | None = None,
        ordering: str | None = None,
        rate_limit: Key | Iterable[Key] | None = None,
        rate_cost: int | None = None,
        unique_key: Key | None = None,
        unique_until: str | None = None,
        on_conflict: str | None = None,
        merge: str | Callable[..., Any] | None = None,
        max_wait: float | timedelta | None = None,
        after: Iterable[Any] | None = None,
        after_failure: str | None = None,
        subject: Any = None,
        max_losses: int | None = None,
        expires: datetime | timedelta | None = None,
        on_failure: AnyTask | Call | str | None = None,
        **unknown: Never,
    ) -> Task:
        """Return a copy of the task with other options for the jobs enqueued through it.

        None leaves an option unchanged. *run_after* is an aware datetime, or a timedelta from the
        enqueue by the database's clock. *after* lists jobs (Job, TaskResult or id) that have to
        finish first; *after_failure*: "cancel", "run" or "hold" if one does not succeed. *subject*
        is the model instance they are about. Raise InvalidTask, or TypeError for another option.
        """
        given = {key: value for key, value in locals().items() if key not in ("self", "unknown")}
        check_names(".using()", unknown, given)
        return replace(self, **{key: v for key, v in given.items() if v is not None})

    if TYPE_CHECKING:
        # PgJobsBackend returns this; another backend returns a plain TaskResult.
        def enqueue(self, *args: Any, **kwargs: Any) -> JobResult: ...
        async def aenqueue(self, *args: Any, **kwargs: Any) -> JobResult: ...
        def get_result(self, result_id: str | int) -> JobResult: ...
        async def aget_result(self, result_id: str | int) -> JobResult: ...

    def s(self, *args: Any, **kwargs: Any) -> Call:
        """Return the task with arguments, for a batch: `group(add.s(i, i) for i in range(100))`."""
        return Call(self, args, kwargs)

    def enqueue_many(self, arguments: Iterable[Mapping[str, Any] | tuple[Any, ...]]) -> list[str]:
        """Enqueue a job per item, a few thousand per statement; return their ids in order.

        An item is a dict of keyword arguments or a tuple of positional ones. All jobs are inserted,
        or none, in one transaction or in that of the caller. Raise as `enqueue` does, naming the
        item.
        """
        backend: Any = self.get_backend()
        if is_ours(backend):
            ids: list[str] = backend.enqueue_many(self, arguments)
            return ids
        # Another backend, such as Django's dummy in tests.
        return [
            backend.enqueue(self, (), item).id
            if isinstance(item, Mapping)
            else backend.enqueue(self, item, {}).id
            for item in arguments
        ]

    async def aenqueue_many(
        self, arguments: Iterable[Mapping[str, Any] | tuple[Any, ...]]
    ) -> list[str]:
        """See `enqueue_many`."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(arguments)

    def enqueue_from(self, queryset: QuerySet[Any], **arguments: Any) -> int:
        """Enqueue a job per row of *queryset* in one INSERT ... SELECT; return their number.

        Each argument is an expression over the row, such as `F("pk")`, or a constant:
        `push.enqueue_from(Order.objects.filter(paid=False), order_id=F("pk"))`. The rows never
        reach Python, so `task_enqueued` is not sent. Raise TypeError behind another backend.
        """
        backend: Any = self.get_backend()
        if not is_ours(backend):
            raise TypeError(
                f"enqueue_from() needs PgJobsBackend behind TASKS[{self.backend!r}], got "
                f"{type(backend).__qualname__}. Use enqueue_many() instead."
            )
        count: int = backend.enqueue_from(self, queryset, arguments)
        return count

    async def aenqueue_from(self, queryset: QuerySet[Any], **arguments: Any) -> int:
        """See `enqueue_from`."""
        return await sync_to_async(self.enqueue_from, thread_sensitive=True)(queryset, **arguments)


# Python looks through wrappers, which takes a tenth of a short job.
_is_coroutine_function = cache(inspect.iscoroutinefunction)


def is_async(task: AnyTask) -> bool:
    """Do the jobs of the task run on an event loop?"""
    return _is_coroutine_function(task.func)


def declares_control(task: AnyTask) -> bool:
    """Does the task declare anything about when its jobs start?"""
    is_placed = task.queue_name != DEFAULT_QUEUE or task.priority != DEFAULT_PRIORITY
    return is_placed or has_keys(task)


def has_keys(task: AnyTask) -> TypeGuard[Task]:
    """Have the jobs of the task a concurrency key, rate limits or a unique key?"""
    return has_start_keys(task) or (isinstance(task, Task) and task.unique_key is not None)


def has_start_keys(task: AnyTask) -> TypeGuard[Task]:
    """Do keys say when a job of the task may start?"""
    return isinstance(task, Task) and bool(task.concurrency_key or task.rate_limit)


def _converted(task: Task, option: str, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(getattr(task, option))
    except (TypeError, ValueError) as error:
        raise _refusal(task, f"option {option}: {error}") from None


def check_options(task: Task) -> None:
    """Raise InvalidTask, saying what was expected and given, if an option is wrong."""
    for problem in _find_problems(task):
        raise _refusal(task, problem)


def _refusal(task: Task, said: str) -> InvalidTask:
    name = getattr(task.func, "__qualname__", "")
    return InvalidTask(" ".join(filter(None, ("@task", name, said))))


def _find_problems(task: Task) -> Iterable[str]:
    yield from find_function_problems(task.func)
    yield from _find_run_problems(task)
    yield from find_control_problems(task)
    yield from find_remote_problems(task)
    yield from find_queue_problems(task)
    yield from find_label_problems(task)
    if not isinstance(task.metadata, Mapping):
        yield f"expected metadata to be a dict, got {quoted(task.metadata)}."
    elif task.metadata:
        try:
            encode_value(task.metadata, name="metadata", max_bytes=SERVER_PAYLOAD_BYTES)
        except (TypeError, ValueError) as error:
            yield str(error)


def _find_run_problems(task: Task) -> Iterable[str]:
    for name in ("max_attempts", "max_losses"):
        count = getattr(task, name)
        if count is not None and not is_count(count):
            yield f"expected {name} to be {COUNT}, got {quoted(count)}."
    yield from find_end_problems(task)
    yield from find_timeout_problems(task.timeout)
    if not is_number(task.priority):
        yield f"expected priority to be a whole number, got {quoted(task.priority)}."
    try:
        check_backoff(task.backoff)
    except (TypeError, ValueError) as error:
        yield str(error)
    yield from _find_exception_problems(task)
    yield from find_flag_problems(task)
    if task.atomic and is_async(task):
        yield "expected a plain function for atomic=True: Django has no async transactions."


def _find_exception_problems(task: Task) -> Iterable[str]:
    for name in ("retry_on", "discard_on"):
        for item in getattr(task, name):
            if not (isinstance(item, type) and issubclass(item, BaseException)):
                yield f"expected {name} to list exception classes, got {quoted(item)}."


@overload
def task(function: Callable[..., Any], /) -> Task: ...


@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str = "default",
    takes_context: bool = False,
    max_attempts: int | None = None,
    backoff: Backoff = DEFAULT_BACKOFF,
    timeout: float | timedelta | None = None,
    retry_on: type[BaseException] | Iterable[type[BaseException]] = (Exception,),
    discard_on: type[BaseException] | Iterable[type[BaseException]] = (),
    atomic: bool = False,
    resets_session: bool = True,
    correlation_id: str = "",
    tags: Iterable[str] = (),
    metadata: Mapping[str, Any] = {},
    concurrency_key: Key | None = None,
    concurrency_limit: int | None = None,
    ordering: str = "block",
    rate_limit: Key | Iterable[Key] = (),
    rate_cost: int = 1,
    unique_key: Key | None = None,
    unique_until: str | None = None,
    on_conflict: str = "return",
    merge: str | Callable[..., Any] | None = None,
    max_wait: float | timedelta | None = None,
    max_losses: int | None = None,
    expires: datetime | timedelta | None = None,
    on_failure: AnyTask | Call | str | None = None,
    schedulable: bool = False,
    remote: bool = False,
    schedule: str | timedelta | Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Task]: ...


def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a module-level function as a task; see `Task` for the options.

    *schedule* is a cron expression, a timedelta, or a dict of options of `schedule()`.
    Raise InvalidTask if an option or the function is wrong, and TypeError for an option that
    does not exist.
    """
    of_others = {"func", "is_ours", *OF_JOBS}
    check_names("@task", options, {f.name for f in fields(Task)} - of_others | {"schedule"})
    times = options.pop("schedule", None)

    def declare(func: Callable[..., Any]) -> Task:
        declared = task_backends[options.get("backend", "default")].task_class
        chosen = declared if issubclass(declared, Task) else Task
        made = chosen(func=func, is_ours=True, **options)
        if times is not None:
            schedule_of_task(made, times)
        return made

    return declare(function) if function is not None else declare
