"""Enqueueing: from a call to one INSERT on Django's own connection.

It runs inside whatever transaction is open there; bad input is refused before the statement
is sent. A job without keys takes the shortest statement; `merging` has those with unique keys.
A trigger of the table notifies idle workers (migrations/sql/0001/wake.sql).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from django.db import IntegrityError, connections, transaction
from django.db.models import QuerySet

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.signatures import check_signature
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.enqueueing import merging
from django_pgjobs.enqueueing.columns import (
    Item,
    job_columns,
    make_line,
    split_item,
    start_columns,
)
from django_pgjobs.enqueueing.selecting import IN_PYTHON, select_arguments
from django_pgjobs.queries import enqueue
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.queries.enqueue import CompiledSelect, JobLine, KnownJob
from django_pgjobs.tracing.sending import sending
from django_pgjobs.values.bounds import MAX_KEY_BYTES, MAX_RATE_LIMITS_BYTES

# Rows of one INSERT of enqueue_many: beyond this the gain is below 2 %.
ROWS_PER_INSERT = 5_000


class InsertedJob(NamedTuple):
    """A job that was inserted; *args* and *kwargs* are as the task will get them."""

    id: int
    enqueued_at: datetime
    run_after: datetime | None
    args: Any
    kwargs: Any


def insert(task: AnyTask, args: Any, kwargs: Any) -> InsertedJob | KnownJob:
    """Insert one job, or return the live one that has its unique key."""
    if merging.is_unique(task):
        return _insert_unique(task, args, kwargs)
    with sending(task.module_path, task.queue_name) as sent:
        row = job_columns(task)
        line = make_line(task, args, kwargs)
        with job_cursor() as cursor:
            inserted = enqueue.insert_job(cursor, row, line, start_columns(task))
        sent.ids = [inserted[0]]
    return InsertedJob(*inserted, as_stored(args, line.args), as_stored(kwargs, line.kwargs))


def _insert_unique(task: Task, args: Any, kwargs: Any) -> InsertedJob | KnownJob:
    args, kwargs = merging.call_to_store(task, args, kwargs)
    line = make_line(task, args, kwargs)
    with sending(task.module_path, task.queue_name) as sent:
        [known] = merging.insert_lines(task, [line], detailed=True)
        sent.ids = [known.id] if known.is_new else 0
    if not known.is_new or known.job is None:
        return known
    inserted = known.id, known.job.enqueued_at, known.job.run_after
    return InsertedJob(*inserted, as_stored(args, line.args), as_stored(kwargs, line.kwargs))


def as_stored(value: Any, text: str) -> Any:
    """Return what *text* decodes to; that is *value* itself unless it has dicts inside."""
    # The keys of dicts become strings; everything else TaskResult makes plain.
    return json.loads(text) if "{" in text[1:] else value


def batches(arguments: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of as many items as one INSERT takes; raise TypeError if there are none."""
    if isinstance(arguments, str | Mapping) or not isinstance(arguments, Iterable):
        raise TypeError(
            f"expected a list of dicts or tuples, one for each job, got {arguments!r:.80}."
        )
    remaining = iter(arguments)
    while batch := list(islice(remaining, ROWS_PER_INSERT)):
        yield batch


def insert_many(task: AnyTask, items: list[Item], *, first_index: int) -> list[int]:
    """Insert a job per item in one statement; return their ids.

    Errors name the item, counted from *first_index*.
    """
    with sending(task.module_path, task.queue_name) as sent:
        row = job_columns(task)
        lines = _lines(items, first_index, partial(make_line, task))
        with job_cursor() as cursor:
            ids = enqueue.insert_jobs(cursor, row, lines, start_columns(task))
        sent.ids = ids
    return ids


def insert_many_unique(task: Task, items: list[Item], *, first_index: int) -> list[KnownJob]:
    """Insert a job per item whose unique key no live job has; return the job of each item."""

    def make(args: Any, kwargs: Mapping[str, Any]) -> JobLine:
        return make_line(task, *merging.call_to_store(task, args, kwargs))

    with sending(task.module_path, task.queue_name) as sent:
        found = merging.insert_lines(task, _lines(items, first_index, make), detailed=False)
        sent.ids = [each.id for each in found if each.is_new]
    return found


def _lines(
    items: Iterable[Item],
    first_index: int,
    make: Callable[[Any, Mapping[str, Any]], JobLine],
    *,
    where: str = "enqueue_many()",
) -> list[JobLine]:
    """Return the line of each item; a TypeError or ValueError names the item it is about."""
    lines = []
    for index, item in enumerate(items, first_index):
        try:
            lines.append(make(*split_item(item)))
        except (TypeError, ValueError) as error:
            raise type(error)(f"item {index} of {where}: {error}") from error
    return lines


def lines_of_batch(task: AnyTask, items: Iterable[Item], *, first_index: int) -> list[JobLine]:
    """Return the lines of jobs that are added to a batch."""
    return _lines(items, first_index, partial(make_line, task), where="add_many()")


def insert_from(
    task: AnyTask,
    queryset: QuerySet[Any],
    arguments: Mapping[str, Any],
    *,
    batch_id: int | None = None,
) -> int:
    """Insert a job per row of *queryset*, in a batch or in none; return the number of new jobs."""
    if not isinstance(queryset, QuerySet):
        raise TypeError(f"expected a QuerySet, got {queryset!r:.80}.")
    check_signature(task, (), arguments)
    merging.refuse_function(task)
    database = job_database()
    if queryset.db != database:
        raise ValueError(
            f"expected a QuerySet on {database!r}, the database of the jobs, got one on "
            f"{queryset.db!r}. {IN_PYTHON}"
        )
    selection = select_arguments(task, queryset, arguments)
    if selection is None:
        return 0
    with sending(task.module_path, task.queue_name) as sent:
        count = _insert_selected(task, selection, database, batch_id)
        sent.ids = count
    return count


def _insert_selected(
    task: AnyTask, selection: CompiledSelect, database: str, batch_id: int | None
) -> int:
    row = job_columns(task)
    # A savepoint: only the server can refuse some input, such as a payload that is too long,
    # and that must not abort the caller's transaction.
    with _explaining_keys(), transaction.atomic(using=database):
        if merging.is_unique(task):
            return merging.insert_selected(task, selection, batch_id=batch_id)
        with connections[database].cursor() as cursor:
            return enqueue.insert_jobs_from(
                cursor, selection, row, start_columns(task), batch_id=batch_id
            )


@contextmanager
def _explaining_keys() -> Iterator[None]:
    """Turn the refusal of a key by the domain of its column into a ValueError."""
    try:
        yield
    except IntegrityError as error:
        diagnosis = getattr(error.__cause__, "diag", None)
        constraint = getattr(diagnosis, "constraint_name", None) or ""
        if constraint.startswith("pgjobs_rate_limit_keys"):
            raise ValueError(
                f"expected each row to give a rate_limit of 1 to {MAX_KEY_BYTES} bytes in one "
                f"line, without NULL in its parts, and {MAX_RATE_LIMITS_BYTES} bytes in all."
            ) from error
        for name in ("concurrency_key", "unique_key"):
            if constraint.startswith(f"pgjobs_{name}"):
                raise ValueError(
                    f"expected each row to give a {name} of 1 to {MAX_KEY_BYTES} bytes in one "
                    "line, without NULL in its parts."
                ) from error
        raise
