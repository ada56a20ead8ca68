"""Enqueueing, and what a program may do to a job afterwards.

Everything runs on Django's own connection to the database of the jobs, inside whatever
transaction is open there. Nothing here retries, waits for a worker or leaves the transaction
unusable: what can be refused is refused before the statement is sent.
"""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.exceptions import EmptyResultSet
from django.db import connections, models, router, transaction
from django.db.models import F, QuerySet, Value
from django.db.models.expressions import BaseExpression
from django.db.models.functions import Cast, JSONObject
from django.utils import timezone

from django_pgjobs.compat import AnyTask
from django_pgjobs.conf import get_conf
from django_pgjobs.exceptions import JobError, seconds_or_none
from django_pgjobs.payload import encode_value
from django_pgjobs.queries import jobs, notifications
from django_pgjobs.status import FINISHED, UNFINISHED, JobStatus
from django_pgjobs.tasks import Task

# Rows of one INSERT of enqueue_many: beyond this the gain is below 2 % (docs/performance.md).
ROWS_PER_INSERT = 5_000
# How long cancel() and its like try again when a worker is just writing the same row.
LOCKED_SECONDS = 2.0
# What Python can read back in any time zone; PostgreSQL's calendar is longer.
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
LONGEST_DELAY = timedelta(days=366_000)
JOB_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def job_database() -> str:
    """Return the alias of the database that the table of jobs lives in."""
    return router.db_for_write(apps.get_model("pgjobs", "Job"))


class Inserted(NamedTuple):
    """What became of an enqueue; *args* and *kwargs* are as the task will get them."""

    id: int
    enqueued_at: datetime
    run_after: datetime | None
    args: Any
    kwargs: Any


def insert(task: AnyTask, args: Any, kwargs: Any) -> Inserted:
    """Insert one job."""
    row = job_columns(task)
    row["args"], row["kwargs"] = encode_arguments(task, args, kwargs)
    with connections[job_database()].cursor() as cursor:
        job_id, enqueued_at, run_after = jobs.insert_job(cursor, row)
    stored = as_stored(args, row["args"]), as_stored(kwargs, row["kwargs"])
    return Inserted(job_id, enqueued_at, run_after, *stored)


def as_stored(value: Any, text: str) -> Any:
    """Return what *text* decodes to; that is *value* itself unless it has dicts inside."""
    # The keys of dicts become strings; everything else TaskResult makes plain.
    return json.loads(text) if "{" in text[1:] else value


Item = Mapping[str, Any] | tuple[Any, ...]


def batches(arguments: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of as many items as one INSERT takes."""
    remaining = iter(arguments)
    while batch := list(islice(remaining, ROWS_PER_INSERT)):
        yield batch


def insert_many(task: AnyTask, items: list[Item], *, first_index: int) -> list[int]:
    """Insert a job per item in one statement; return their ids.

    Errors name the item, counted from *first_index*.
    """
    row = job_columns(task)
    encoded = [_encode_item(task, item, first_index + i) for i, item in enumerate(items)]
    row["args"] = "\n".join([args for args, _ in encoded])
    row["kwargs"] = "\n".join([kwargs for _, kwargs in encoded])
    with connections[job_database()].cursor() as cursor:
        return jobs.insert_jobs(cursor, row)


def insert_from(task: AnyTask, queryset: QuerySet[Any], arguments: dict[str, Any]) -> int:
    """Insert a job per row of *queryset*; return their number."""
    check_signature(task, (), arguments)
    database = job_database()
    if queryset.db != database:
        raise ValueError(
            f"enqueue_from() expected a QuerySet on the database {database!r}, where the jobs "
            f"are, got one on {queryset.db!r}. Use enqueue_many() for rows of another database."
        )
    expressions = {
        name: value if isinstance(value, BaseExpression | F) else _constant(name, value)
        for name, value in arguments.items()
    }
    selected = queryset.annotate(pgjobs_kwargs=JSONObject(**expressions))
    query = selected.values_list("pgjobs_kwargs").query
    try:
        select, select_params = query.get_compiler(using=database).as_sql()
    except EmptyResultSet:
        return 0
    # A savepoint: what the server refuses, such as a payload that is too long, is not known
    # before, and must not end the caller's transaction.
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        return jobs.insert_jobs_from(cursor, select, select_params, job_columns(task))


def _constant(name: str, value: Any) -> BaseExpression:
    text = encode_value(value, name=name, max_bytes=get_conf().MAX_PAYLOAD_BYTES)
    plain = json.loads(text)
    if isinstance(plain, str):
        # Bound on the server, a text without a cast has no type before PostgreSQL 16.
        return Cast(Value(plain), models.TextField())
    if isinstance(plain, dict | list):
        return Value(plain, output_field=models.JSONField())
    return Value(plain)


def get_row(job_id: int, *, backend: str) -> jobs.JobRow | None:
    """Return a stored job of a backend alias, None if there is none."""
    with connections[job_database()].cursor() as cursor:
        return jobs.get_job(cursor, job_id, backend=backend)


def job_columns(task: AnyTask) -> dict[str, Any]:
    """Return the columns that the task's options determine."""
    run_after, delay = instant_or_delay(task.run_after)
    ours = task if isinstance(task, Task) else None
    metadata = ours.metadata if ours else None
    return {
        "task_path": task.module_path,
        "queue_name": task.queue_name,
        "backend": task.backend,
        "priority": int(task.priority),
        "run_after": run_after,
        "delay": delay,
        "max_attempts": (ours.max_attempts if ours else None) or get_conf().MAX_ATTEMPTS,
        "timeout": ours.timeout if ours else None,
        "correlation_id": ours.correlation_id if ours else "",
        "tags": list(ours.tags) if ours else [],
        "metadata": _encode_metadata(metadata) if metadata else "{}",
    }


def _encode_metadata(metadata: Mapping[str, Any]) -> str:
    limit = get_conf().MAX_PAYLOAD_BYTES
    return encode_value(dict(metadata), name="metadata", max_bytes=limit)


def _encode_item(task: AnyTask, item: Item, index: int) -> tuple[str, str]:
    try:
        if isinstance(item, Mapping):
            return encode_arguments(task, (), item)
        if isinstance(item, tuple | list):
            return encode_arguments(task, item, {})
        raise TypeError(
            f"expected a dict of keyword arguments or a tuple of positional ones, got {item!r}."
        )
    except (TypeError, ValueError) as error:
        raise type(error)(f"item {index} of enqueue_many(): {error}") from error


def encode_arguments(task: AnyTask, args: Any, kwargs: Any) -> tuple[str, str]:
    """Return both columns; raise TypeError or ValueError if the task could not be called so."""
    check_signature(task, args, kwargs)
    limit = get_conf().MAX_PAYLOAD_BYTES
    return (
        encode_value(list(args), name="args", max_bytes=limit) if args else "[]",
        encode_value(dict(kwargs), name="kwargs", max_bytes=limit) if kwargs else "{}",
    )


class Signature:
    """What a task's function accepts, in the form that is quick to check."""

    def __init__(self, function: Any, takes_context: bool) -> None:
        self.full = inspect.signature(function)
        parameters = list(self.full.parameters.values())
        # What the worker passes before the arguments of the job.
        self.first: tuple[object, ...] = ()
        if takes_context:
            self.first = (None,)
            parameters = parameters[1:]
        self.text = str(self.full.replace(parameters=parameters))
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self.is_simple = all(parameter.kind in named for parameter in parameters)
        self.names = frozenset(parameter.name for parameter in parameters)
        self.required = frozenset(
            p.name for p in parameters if p.default is inspect.Parameter.empty
        )

    def accepts_names(self, names: Iterable[str]) -> bool:
        """Is a call with just these keyword arguments certain to fit?"""
        given = set(names)
        return self.is_simple and self.required <= given <= self.names


@lru_cache(maxsize=4096)
def signature_of(function: Any, takes_context: bool) -> Signature:
    """Return the signature of a task's function, without its context argument."""
    return Signature(function, takes_context)


def check_signature(task: AnyTask, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError if the task's function cannot be called with these arguments."""
    signature = signature_of(task.func, task.takes_context)
    if not args and signature.accepts_names(kwargs):
        return
    try:
        signature.full.bind(*signature.first, *args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{task.module_path}{signature.text} cannot be called with the arguments given: "
            f"{error}."
        ) from None


def cancel(job: Any) -> bool:
    """Cancel a job, given the Job, its id or its TaskResult.

    One that waits is cancelled at once; one that runs is asked to end, and is cancelled when
    it does. Return False if it had finished or does not exist. Takes part in the caller's
    transaction: a worker hears of it at commit.
    """
    job_id = job_id_of(job)
    with connections[job_database()].cursor() as cursor:
        before = _change_when_unlocked(
            cursor, job_id, UNFINISHED, lambda: jobs.cancel_jobs(cursor, [job_id])
        )
        if before == JobStatus.RUNNING:
            notifications.notify_cancelled(cursor)
    return before is not None


def requeue(job: Any, *, run_after: datetime | timedelta | None = None) -> bool:
    """Give a finished job new attempts, given the Job, its id or its TaskResult.

    Its errors stay as history; its result goes. Return False if it is not finished or does
    not exist. Takes part in the caller's transaction.
    """
    job_id = job_id_of(job)
    instant, delay = instant_or_delay(run_after)
    with connections[job_database()].cursor() as cursor:
        queue = _change_when_unlocked(
            cursor,
            job_id,
            FINISHED,
            lambda: jobs.requeue_jobs(cursor, [job_id], run_after=instant, delay=delay),
        )
        if queue is not None:
            notifications.notify_workers(cursor, [queue])
    return queue is not None


def reschedule(job: Any, run_after: datetime | timedelta | None) -> bool:
    """Move a waiting job to another time, None for now; the job may be an id or TaskResult.

    Return False if it is running or finished, or does not exist. Takes part in the caller's
    transaction.
    """
    job_id = job_id_of(job)
    instant, delay = instant_or_delay(run_after)
    with connections[job_database()].cursor() as cursor:
        queue = _change_when_unlocked(
            cursor,
            job_id,
            {JobStatus.READY},
            lambda: jobs.reschedule_jobs(cursor, [job_id], run_after=instant, delay=delay),
        )
        if queue is not None:
            notifications.notify_workers(cursor, [queue])
    return queue is not None


acancel = sync_to_async(cancel, thread_sensitive=True)
arequeue = sync_to_async(requeue, thread_sensitive=True)
areschedule = sync_to_async(reschedule, thread_sensitive=True)


def _change_when_unlocked(
    cursor: Any,
    job_id: int,
    statuses: Collection[str],
    change: Callable[[], dict[int, str]],
) -> str | None:
    """Return what *change* says of the job, None if its status is none of *statuses*.

    The statements pass over locked rows: to wait for a row that a worker is just moving to
    the other partition would end in a serialization error, and with it the caller's
    transaction. So a change that met a lock is tried again.
    """
    deadline = time.monotonic() + LOCKED_SECONDS
    while True:
        changed = change()
        if changed:
            return changed[job_id]
        if jobs.get_job_status(cursor, job_id) not in statuses:
            return None
        if time.monotonic() > deadline:
            raise JobError(
                f"job {job_id} is locked by another transaction for more than "
                f"{LOCKED_SECONDS:g} s. Try again when that transaction has ended."
            )
        time.sleep(0.01)


def instant_or_delay(
    run_after: datetime | timedelta | None,
) -> tuple[datetime | None, float | None]:
    """Return *run_after* as an instant or as seconds from now.

    Raise TypeError or ValueError if it is neither, or out of all bounds.
    """
    if run_after is None:
        return None, None
    if not isinstance(run_after, datetime | timedelta):
        raise TypeError(f"expected run_after to be a datetime or a timedelta, got {run_after!r}.")
    if isinstance(run_after, timedelta):
        if run_after > LONGEST_DELAY:
            raise ValueError(f"expected run_after within 1000 years from now, got {run_after!r}.")
        return None, seconds_or_none(run_after)
    instant = run_after
    if timezone.is_naive(run_after):
        if settings.USE_TZ:
            raise ValueError(f"expected run_after with a time zone, got {run_after!r}.")
        instant = timezone.make_aware(run_after)
    if not EARLIEST <= instant <= LATEST:
        raise ValueError(f"expected run_after in the years 1 to 9999, got {run_after!r}.")
    return instant, None


def job_id_of(job: Any) -> int:
    """Return the id of a Job, a TaskResult, or an id itself; raise ValueError for other text."""
    value = getattr(job, "pk", None) or getattr(job, "id", job)
    job_id = value if isinstance(value, int) else parse_job_id(value)
    if job_id is None or not 0 < job_id < 2**63:
        raise ValueError(f"expected a job, its id or its TaskResult, got {job!r}.")
    return job_id


def parse_job_id(text: object) -> int | None:
    """Return the id that *text* spells exactly as we do, None for anything else."""
    if not isinstance(text, str) or not JOB_ID.fullmatch(text):
        return None
    job_id = int(text)
    return job_id if job_id < 2**63 else None
