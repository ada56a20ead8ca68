"""Jobs as bodies describe them: from fields to calls of tasks that a token is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured

from django_pgjobs.compat import AnyTask, InvalidTask
from django_pgjobs.declaring.calls import Call
from django_pgjobs.declaring.labels import MAX_TAG_BYTES, MAX_TAGS
from django_pgjobs.declaring.registry import discover_tasks_once, find_task, is_own
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.enqueueing.columns import make_line
from django_pgjobs.enqueueing.dependencies import refuse_missing
from django_pgjobs.exceptions import JobError, UnknownTask
from django_pgjobs.http.access import Access
from django_pgjobs.http.calling import EVENTS, Event, call_back
from django_pgjobs.http.destinations import MAX_URL
from django_pgjobs.http.fields import Fields
from django_pgjobs.http.owning import jobs_of
from django_pgjobs.http.problems import forbidden
from django_pgjobs.http.sessions import CONFLICT_ERRORS
from django_pgjobs.status import AfterFailure
from django_pgjobs.values.bounds import (
    MAX_CORRELATION_ID_BYTES,
    MAX_INTEGER,
    MAX_PRIORITY,
    MAX_QUEUE_NAME_BYTES,
    MAX_TASK_PATH_BYTES,
    MIN_PRIORITY,
)
from django_pgjobs.workflows.steps import check_task, make_step

MAX_ARGUMENTS = 1_000
MAX_METADATA = 1_000
MAX_AFTER = 1_000
MAX_CALLBACKS = 20
LONGEST_SECONDS = 1e10
# What code of ours, or of the project, raises about what it was given.
MISTAKES = (JobError, InvalidTask, ImproperlyConfigured, TypeError, ValueError)

T = TypeVar("T")


@dataclass(frozen=True)
class CallAtEnd:
    """A call that is enqueued at the end of a job or a batch."""

    fields: Fields
    on: Event
    call: Call


@dataclass(frozen=True)
class NewJob:
    """A job of a body, with the fields that its mistakes belong to."""

    fields: Fields
    call: Call
    callbacks: list[CallAtEnd] = field(default_factory=list)


def noting(fields: Fields, do: Callable[[], T]) -> T | None:
    """Return what *do* returns; note what it raises about what it was given, and return None."""
    try:
        return do()
    except MISTAKES as error:
        fields.refuse_all(str(error))
    return None


@contextmanager
def blamed_on(fields: Fields) -> Iterator[None]:
    """Raise Problem (422) that names *fields* for what is raised about what they say."""
    try:
        yield
    except CONFLICT_ERRORS:
        raise
    except MISTAKES as error:
        fields.refuse_all(str(error))
        fields.check()


def read_job(fields: Fields, access: Access, *, callbacks: bool = False) -> NewJob | None:
    """Return the job that is described; None after noting what is wrong with it.

    Raise Problem (403) for one that the token is not for.
    """
    options = _read_options(fields)
    options |= {
        "after": fields.texts("after", default=None, max_items=MAX_AFTER, max_length=19),
        "after_failure": fields.text(
            "after_failure", default=None, max_length=10, choices=AfterFailure.values
        ),
    }
    told = read_callbacks(fields, access, of_job=True) if callbacks else []
    call = _read_call(fields, access, options)
    if call is None:
        return None
    if not access.is_for_all:
        noting(fields, lambda: _require_predecessors(call.task, access))
    is_storable = noting(fields, lambda: make_line(call.task, call.args, call.kwargs))
    return NewJob(fields, call, told) if is_storable else None


def _require_predecessors(task: AnyTask, access: Access) -> None:
    """Raise ValueError as for jobs that are not there if *task* waits for some of others."""
    if isinstance(task, Task) and task.after:
        seen = set(jobs_of(access).filter(pk__in=task.after).values_list("pk", flat=True))
        refuse_missing(task, seen)


def read_step(fields: Fields, access: Access, *, leading: int) -> Call | None:
    """Return a call that is placed behind other jobs, with *leading* arguments before its own.

    None after noting what is wrong with it.
    """
    call = _read_call(fields, access, _read_options(fields))
    if call is None or noting(fields, lambda: make_step(call, leading=leading)) is None:
        return None
    return call


def read_callbacks(fields: Fields, access: Access, *, of_job: bool = False) -> list[CallAtEnd]:
    """Return what is to be told at the end: an address, or of a batch a task, too."""
    told = []
    for given in fields.objects("callbacks", default=[], max_items=MAX_CALLBACKS):
        on = given.text("on", default="complete", max_length=10, choices=EVENTS)
        event = next((each for each in EVENTS if each == on), EVENTS[0])
        call = _read_url(given) if of_job else _read_url_or_call(given, access)
        if call is not None:
            told.append(CallAtEnd(given, event, call))
    return told


def _read_url(fields: Fields) -> Call | None:
    url = fields.text("url", max_length=MAX_URL)
    return noting(fields, lambda: call_back(url)) if url else None


def _read_url_or_call(fields: Fields, access: Access) -> Call | None:
    url = fields.text("url", default=None, max_length=MAX_URL)
    given = fields.object("call", default=None)
    call = read_step(given, access, leading=1) if given is not None else None
    if (url is None) == (given is None):
        fields.refuse_all("expected either an url or a call")
        return None
    return call if url is None else noting(fields, lambda: call_back(url))


def _read_options(fields: Fields) -> dict[str, Any]:
    """Return the options of a job that a client may give, None for those that it does not."""
    seconds = fields.seconds("delay", 0, LONGEST_SECONDS, default=None)
    expires_in = fields.seconds("expires_in", 0, LONGEST_SECONDS, default=None)
    return {
        "queue_name": fields.text("queue", default=None, max_length=MAX_QUEUE_NAME_BYTES),
        "priority": fields.integer("priority", MIN_PRIORITY, MAX_PRIORITY, default=None),
        "run_after": _moment(fields, "run_after", "delay", seconds),
        "max_attempts": fields.integer("max_attempts", 1, MAX_INTEGER, default=None),
        "timeout": fields.seconds("timeout", 0.001, LONGEST_SECONDS, default=None),
        "correlation_id": fields.text(
            "correlation_id", default=None, min_length=0, max_length=MAX_CORRELATION_ID_BYTES
        ),
        "tags": fields.texts("tags", default=None, max_items=MAX_TAGS, max_length=MAX_TAG_BYTES),
        "metadata": fields.mapping("metadata", default=None, max_items=MAX_METADATA),
        "expires": _moment(fields, "expires_at", "expires_in", expires_in),
    }


def _moment(
    fields: Fields, name: str, other: str, seconds: float | None
) -> datetime | timedelta | None:
    """Return the field *name*, an instant, or *seconds* from now, which is the field *other*."""
    instant = fields.instant(name)
    if instant is not None and seconds is not None:
        fields.refuse(other, f"expected either this or {name}")
    return timedelta(seconds=seconds) if seconds is not None else instant


def _read_call(fields: Fields, access: Access, options: Mapping[str, Any]) -> Call | None:
    path = fields.text("task", max_length=MAX_TASK_PATH_BYTES)
    args = fields.json("args", default=[])
    kwargs = fields.mapping("kwargs", default={}, max_items=MAX_ARGUMENTS)
    if not isinstance(args, list) or len(args) > MAX_ARGUMENTS:
        fields.refuse("args", f"expected a list of at most {MAX_ARGUMENTS}")
    task = _find_task(fields, access, path) if path else None
    if task is None or fields.is_refused("args") or fields.is_refused("kwargs"):
        return None
    given: dict[str, Any] = {name: each for name, each in options.items() if each is not None}
    used = noting(fields, lambda: check_task(task.using(**given) if given else task))
    if used is None:
        return None
    access.require_use(used.queue_name, used.module_path)
    return Call(used, tuple(args), kwargs)


def _find_task(fields: Fields, access: Access, path: str) -> AnyTask | None:
    """Return a task of the project; what a token is not for it does not learn of."""
    if access.tasks is not None and path not in access.tasks:
        raise forbidden(f"This token is not for {path!r}.")
    # Those of a web process that has not enqueued anything may not be loaded.
    discover_tasks_once()
    try:
        if not is_own(path):
            return find_task(path)
    except UnknownTask:
        pass
    fields.refuse("task", "no such task is declared here")
    return None
