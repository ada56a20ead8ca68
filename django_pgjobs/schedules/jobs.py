"""From an occurrence to its job, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

import psycopg
from django.db import Error as DatabaseError
from django.db import transaction

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.registry import IMPORT_ERRORS
from django_pgjobs.enqueueing.meeting import Met, noting_met
from django_pgjobs.exceptions import DuplicateJob
from django_pgjobs.models.jobs import Job
from django_pgjobs.queries import schedules as queries
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.errors import STOOD_STILL, Trouble, trouble_of
from django_pgjobs.queries.schedules import OccurrenceRow
from django_pgjobs.schedules.plans import HasPolicies, delay_of, policies_of
from django_pgjobs.status import OccurrenceOutcome
from django_pgjobs.values.payload import decode_value, scrub
from django_pgjobs.values.words import with_text

MAX_NOTE = 1_000
# Of the earlier jobs of a schedule, by one occurrence: a turn is to be short.
MAX_CANCELLED = 1_000
JOINED = "A job with its unique key was there."


class Blocked(Exception):
    """The server gives or takes nothing of schedule *name* now; None: of one among several.

    Nothing of the turn has happened; it is to be made without that one, or with one alone.
    """

    def __init__(self, name: str | None, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class HasCall(HasPolicies, Protocol):
    """What says how the jobs of a schedule are enqueued: a row, or `control.Chosen`.

    The arguments are a list and a dict, or their JSON text; in a row they may be anything.
    """

    @property
    def args(self) -> Any: ...
    @property
    def kwargs(self) -> Any: ...


def enqueue_occurrence(
    row: HasCall, task: AnyTask, instant: datetime, unfinished: list[int]
) -> OccurrenceRow:
    """Enqueue the job of an occurrence, and return its outcome; *unfinished* is brought up to date.

    In the caller's transaction. Raise Blocked, or a psycopg error after which nothing goes on.
    """
    entered = OccurrenceRow(row.name, instant, OccurrenceOutcome.ENQUEUED)
    if row.overlap == "skip" and unfinished:
        return entered._replace(
            outcome=OccurrenceOutcome.SKIPPED, note=f"Job {unfinished[0]} has not finished."
        )
    try:
        with transaction.atomic(using=job_database()), noting_met() as met:
            if row.overlap == "cancel":
                Job.objects.filter(pk__in=unfinished[:MAX_CANCELLED]).cancel()
            job_id = _insert(row, task, instant)
    except DuplicateJob as error:
        return entered._replace(outcome=OccurrenceOutcome.SKIPPED, note=scrub(str(error), MAX_NOTE))
    except DatabaseError as error:
        raise_unless_refused(row.name, error)
        return _failed(entered, error)
    except IMPORT_ERRORS as error:  # keys and receivers are the project's code
        return _failed(entered, error)
    earlier = [] if row.overlap == "cancel" else unfinished
    unfinished[:] = earlier if job_id in met else [*earlier, job_id]
    return with_job(entered, job_id, met)


def _failed(entered: OccurrenceRow, error: BaseException) -> OccurrenceRow:
    text = scrub(with_text(type(error).__name__, error), MAX_NOTE)
    return entered._replace(outcome=OccurrenceOutcome.FAILED, note=text)


def raise_unless_refused(name: str | None, error: DatabaseError) -> None:
    """Raise what is not about this one job: a lost connection, a crossing, somebody's lock."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.Error):
        return
    trouble = trouble_of(cause)
    # One that stood still did so in this job's keys or receivers, or its process was stopped.
    if trouble in (Trouble.LOCKED, Trouble.CROSSED) or cause.sqlstate == STOOD_STILL:
        raise Blocked(name, str(cause).strip()) from error
    if trouble is Trouble.LOST:
        raise error


def _insert(row: HasCall, task: AnyTask, instant: datetime) -> int:
    policies = policies_of(row, task)
    options: dict[str, Any] = {}
    if policies.jitter:
        options["run_after"] = instant + delay_of(row.name, instant, policies.jitter)
    if policies.overlap == "queue":
        name = row.name.replace("{", "{{").replace("}", "}}")
        options["concurrency_key"] = f"schedule:{name}"
        options["concurrency_limit"] = 1
    chosen = task.using(**options) if options else task
    args, kwargs = arguments_of(row)
    return int(chosen.enqueue(*args, **kwargs).id)


def arguments_of(row: HasCall) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a row; raise TypeError or ValueError if they are none."""
    args, kwargs = (
        decode_value(value) if isinstance(value, str) else value for value in (row.args, row.kwargs)
    )
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError(f"expected a list and a dict as arguments, got {args!r} and {kwargs!r}.")
    return args, kwargs


def with_job(row: OccurrenceRow, job_id: int, met: Met) -> OccurrenceRow:
    """Return the outcome of an occurrence whose enqueue returned this job."""
    if job_id in met:
        return row._replace(outcome=OccurrenceOutcome.JOINED, note=JOINED, job_id=job_id)
    return row._replace(job_id=job_id)


def note(cursor: Cursor, done: Sequence[OccurrenceRow]) -> list[OccurrenceRow]:
    """Write the outcomes of entered occurrences, and their schedule into their jobs."""
    made: dict[int | None, OccurrenceRow] = {}
    told = []
    for row in done:
        if row.outcome == OccurrenceOutcome.ENQUEUED and row.job_id is not None:
            # Of several that one statement enqueued with the same unique key the first made it.
            if row.job_id in made:
                row = row._replace(outcome=OccurrenceOutcome.JOINED, note=JOINED)
            else:
                made[row.job_id] = row
        told.append(row)
    if made:
        queries.mark_scheduled_jobs(cursor, list(made.values()))
    if told:
        queries.note_occurrences(cursor, told)
    return told
