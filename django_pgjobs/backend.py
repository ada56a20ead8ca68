"""The `django.tasks` backend, `"BACKEND": "django_pgjobs.backend.PgJobsBackend"` in TASKS.

Importing this module and building the backend touch no model and no database, because both
happen while the project's task modules are imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import transaction
from django.db.models import QuerySet

from django_pgjobs.compat import (
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    task_backends,
)
from django_pgjobs.conf import OWN_QUEUE
from django_pgjobs.control import lifecycle
from django_pgjobs.declaring.backends import OPTION_RULES
from django_pgjobs.declaring.endings import find_follow_up
from django_pgjobs.declaring.job_result import JobResult
from django_pgjobs.declaring.registry import find_task
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.enqueueing import dependencies, inserting, merging
from django_pgjobs.enqueueing.columns import split_item
from django_pgjobs.exceptions import UnknownTask
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.enqueue import KnownJob
from django_pgjobs.results import local_time, new_result, replace_unchecked, result_of_row
from django_pgjobs.signals import has_receivers, task_enqueued
from django_pgjobs.values.bounds import (
    MAX_ALIAS_BYTES,
    MAX_BIGINT,
    MAX_QUEUE_NAME_BYTES,
    MAX_TASK_PATH_BYTES,
)
from django_pgjobs.values.given import instant_or_delay
from django_pgjobs.values.job_ids import parse_job_id
from django_pgjobs.values.payload import fits_column, quoted
from django_pgjobs.values.twins import has_async_twin

# What the module that was started is called, in its process and in those that it starts: a worker
# is another program, and would wait for such a task for ever.
PROGRAMS = frozenset({"__main__", "__mp_main__"})


class PgJobsBackend(BaseTaskBackend):
    """Stores jobs in the table pgjobs_job of the project's own database."""

    task_class = Task
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    # The keys of OPTIONS in TASKS; a subclass with options of its own adds theirs.
    known_options: frozenset[str] = frozenset(OPTION_RULES)

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        if self.queues:
            self.queues.add(OWN_QUEUE)

    def validate_task(self, task: AnyTask) -> None:
        """Raise InvalidTask if the task cannot be enqueued here."""
        run_after: Any = task.run_after
        # A look-alike, because django.tasks knows no timedelta, does not say what to do about a
        # queue, and would validate a copy.
        super().validate_task(
            SimpleNamespace(  # type: ignore[arg-type]
                func=task.func,
                priority=task.priority,
                backend=task.backend,
                queue_name=OWN_QUEUE,
                takes_context=task.takes_context,
                run_after=run_after if isinstance(run_after, datetime) else None,
            )
        )
        if self.queues and task.queue_name not in self.queues:
            raise InvalidTask(
                f"Queue '{task.queue_name}' is not valid for backend. Add it to "
                f"TASKS[{self.alias!r}]['QUEUES'], or set that to [], which allows all."
            )
        if not task.func.__qualname__.isidentifier():
            raise InvalidTask(
                "Task function must be defined at a module level, under a name of its own: "
                f"a worker cannot find {task.module_path}."
            )
        try:
            instant_or_delay(run_after)
        except (TypeError, ValueError) as error:
            raise InvalidTask(str(error)) from None
        _check_text("queue_name", task.queue_name, MAX_QUEUE_NAME_BYTES)
        _check_text("the task's path", task.module_path, MAX_TASK_PATH_BYTES)
        _check_text("the alias in TASKS", self.alias, MAX_ALIAS_BYTES)

    @has_async_twin
    def enqueue(self, task: AnyTask, args: Any, kwargs: Any) -> Any:
        """Insert the job in the caller's transaction and return its result.

        If a live job has its unique key, return that one's instead, as it is then; no signal
        is sent.
        Raise InvalidTask, TypeError or ValueError before anything is sent if the task or its
        arguments cannot be stored.
        """
        self.check_task(task)
        with dependencies.waiting(task) as hold_back:
            stored = inserting.insert(task, args, kwargs)
            if isinstance(stored, KnownJob):
                return self._result_of_twin(stored)
            hold_back([stored.id])
        result = new_result(
            _with_instant(task, stored.run_after),
            job_id=stored.id,
            enqueued_at=stored.enqueued_at,
            args=stored.args,
            kwargs=stored.kwargs,
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    @has_async_twin
    def enqueue_many(
        self, task: AnyTask, arguments: Iterable[Mapping[str, Any] | tuple[Any, ...]]
    ) -> list[str]:
        """See `Task.enqueue_many`."""
        self.check_task(task)
        ids: list[str] = []
        with (
            transaction.atomic(using=job_database()),
            dependencies.waiting(task) as hold_back,
        ):
            for items in inserting.batches(arguments):
                if merging.is_unique(task):
                    known = inserting.insert_many_unique(task, items, first_index=len(ids))
                    hold_back([job.id for job in known if job.is_new])
                    ids.extend(str(job.id) for job in known)
                    if has_receivers(task_enqueued):
                        self._announce_unique(known)
                    continue
                inserted = inserting.insert_many(task, items, first_index=len(ids))
                hold_back(inserted)
                ids.extend(map(str, inserted))
                if has_receivers(task_enqueued):
                    self.announce(task, inserted, [split_item(item) for item in items])
        return ids

    @has_async_twin
    def enqueue_from(
        self, task: AnyTask, queryset: QuerySet[Any], arguments: Mapping[str, Any]
    ) -> int:
        """See `Task.enqueue_from`."""
        self.check_task(task)
        dependencies.refuse_waiting(task)
        return inserting.insert_from(task, queryset, arguments)

    def get_result(self, result_id: str | int) -> JobResult:
        """Return the job's result; raise TaskResultDoesNotExist for any other id."""
        if type(result_id) is int:
            job_id = result_id if 0 < result_id <= MAX_BIGINT else None
        else:
            job_id = parse_job_id(result_id)
        row = lifecycle.get_row(job_id, backend=self.alias) if job_id is not None else None
        if row is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of_row(row, self.alias)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Report a project that uses the backend without its app."""
        if apps.is_installed("django_pgjobs"):
            return []
        return [
            Error(
                f"TASKS[{self.alias!r}] uses PgJobsBackend, but its app is not installed.",
                hint="Add 'django_pgjobs' to INSTALLED_APPS and run manage.py migrate.",
                id="pgjobs.E001",
            )
        ]

    def check_references(self, task: Task) -> None:
        """Raise InvalidTask if an option of the task names code that cannot be used.

        Its modules are imported. `manage.py check` calls this for every declared task.
        """
        merging.own_function(task)
        if task.on_failure is None:
            return
        handler = find_follow_up(task).task
        backend = task_backends[handler.backend]
        if not isinstance(backend, PgJobsBackend):
            raise InvalidTask(
                f"expected on_failure of {task.module_path} to be a task of a backend whose "
                f"jobs our workers run, got {handler.module_path}, whose backend is "
                f"{handler.backend!r}."
            )
        try:
            backend._check_one(handler)
        except InvalidTask as error:
            raise InvalidTask(f"{task.module_path} option on_failure: {error}") from None

    def check_task(self, task: AnyTask) -> None:
        """Raise InvalidTask if no worker could run the task's jobs, or what follows a failure."""
        self._check_one(task)
        if isinstance(task, Task):
            self.check_references(task)

    def _check_one(self, task: AnyTask) -> None:
        self.validate_task(task)
        if task.func.__module__ in PROGRAMS:
            raise InvalidTask(
                f"expected {task.module_path} to be in a module that workers import, got one in "
                "the program that was started. Move it to the tasks.py of an app, or a module in "
                "PGJOBS['TASK_MODULES'], and import it from there."
            )
        try:
            find_task(task.module_path)
        except UnknownTask:
            raise InvalidTask(
                f"expected {task.module_path} to be a task, as workers look for it there. "
                "Declare it with @task above the function, and let no other decorator follow."
            ) from None

    def _result_of_twin(self, known: KnownJob) -> Any:
        if known.job is None:
            return self.get_result(str(known.id))
        return result_of_row(known.job, known.backend)

    def _announce_unique(self, known: list[KnownJob]) -> None:
        for job in known:
            row = lifecycle.get_row(job.id, backend=self.alias) if job.is_new else None
            if row is not None:
                result = result_of_row(row, self.alias)
                task_enqueued.send(type(self), task_result=result)

    def announce(
        self, task: AnyTask, ids: Sequence[int], calls: Iterable[tuple[Any, Mapping[str, Any]]]
    ) -> None:
        """Send task_enqueued for jobs of one statement, with the arguments of each."""
        # They share their timestamps.
        first = lifecycle.get_row(ids[0], backend=self.alias)
        if first is None:
            return
        task = _with_instant(task, first.run_after)
        for job_id, (args, kwargs) in zip(ids, calls, strict=True):
            result = new_result(
                task, job_id=job_id, enqueued_at=first.enqueued_at, args=args, kwargs=kwargs
            )
            task_enqueued.send(type(self), task_result=result)


def _with_instant(task: AnyTask, run_after: datetime | None) -> AnyTask:
    """Return *task* with the time that was stored for its `run_after`."""
    if task.run_after is None:
        return task
    return replace_unchecked(task, {"run_after": local_time(run_after)})


def our_aliases() -> list[str]:
    """Return the aliases in TASKS whose backend is this one, or a subclass of it."""
    aliases = task_backends.settings
    return [alias for alias in aliases if isinstance(task_backends[alias], PgJobsBackend)]


def _check_text(name: str, text: Any, limit: int) -> None:
    if not fits_column(text, limit):
        raise InvalidTask(
            f"expected {name} to be text of 1 to {limit} bytes without NUL, got {quoted(text)}."
        )
