"""What is done to a page of jobs in one transaction, and who has to hear of it.

Each passes over jobs that another transaction has locked, and over those whose status is by then
none of *statuses*.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypedDict

import psycopg
from django.db import DatabaseError, transaction

from django_pgjobs.queries import batch_retries, batches, bulk, jobs, notifications
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.status import FINISHED, UNFINISHED, JobStatus
from django_pgjobs.values.given import instant_or_delay


class RunTimes(TypedDict):
    """When jobs are to run: at *run_after*, or within *spread* seconds behind a *delay*.

    Both None: now.
    """

    run_after: datetime | None
    delay: float | None
    spread: float


@dataclass
class Effect:
    """What was done to jobs: the ids of those that *changed*, and the *conflicts*.

    A conflict is a job and the twin with its unique key, None if that is not committed yet. Those
    that are *kept* stay as they are, however long somebody waits.
    """

    changed: list[int] = field(default_factory=list)
    conflicts: list[tuple[int, int | None]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def __add__(self, other: Effect) -> Effect:
        return Effect(
            self.changed + other.changed, self.conflicts + other.conflicts, self.kept + other.kept
        )


class Change(Protocol):
    """Changes those of some jobs with one of *statuses* that it can, in the open transaction."""

    def __call__(self, cursor: Cursor, ids: list[int], *, statuses: Collection[str]) -> Effect: ...


def do_to_most(
    ids: list[int],
    act: Callable[[list[int]], Effect],
    on_refusal: Callable[[int, DatabaseError], object],
) -> Effect:
    """Do something to jobs but to those that the server refuses, which *on_refusal* is told.

    It is tried with half of them then, and in the end with one.
    """
    try:
        with transaction.atomic(using=job_database()):
            return act(ids)
    except DatabaseError as error:
        if not is_refused(error):
            raise
        if len(ids) == 1:
            on_refusal(ids[0], error)
            return Effect()
    middle = len(ids) // 2
    first = do_to_most(ids[:middle], act, on_refusal)
    return first + do_to_most(ids[middle:], act, on_refusal)


def is_refused(error: DatabaseError) -> bool:
    """Does the server refuse what a row would hold, as a trigger of the project's may?"""
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and trouble_of(cause) is Trouble.REFUSED


def refusal_text(error: DatabaseError | str) -> str:
    """Return what the server said of a row that it refused, in one line."""
    return f"the database refused it: {' '.join(str(error).split())}."


def times_of(run_after: datetime | timedelta | None) -> RunTimes:
    """Return what a caller said of the time; raise TypeError or ValueError if that is none."""
    instant, delay = instant_or_delay(run_after)
    return {"run_after": instant, "delay": delay, "spread": 0.0}


def cancel_jobs(cursor: Cursor, ids: list[int], statuses: Collection[str] = UNFINISHED) -> Effect:
    """Cancel jobs that wait, and ask those that run to end."""
    cancelled = jobs.cancel_jobs(cursor, ids, statuses=statuses)
    if JobStatus.RUNNING in cancelled.values():
        notifications.notify_cancelled(cursor)
    return Effect(list(cancelled))


def requeue_jobs(
    cursor: Cursor, ids: list[int], *, statuses: Collection[str] = FINISHED, times: RunTimes
) -> Effect:
    """Give finished jobs new attempts."""
    effect = Effect()
    queues, batch_ids = [], set()
    for row in jobs.requeue_jobs(cursor, ids, statuses=statuses, **times):
        if row.queue_name is None:
            effect.conflicts.append((row.id, row.twin_id))
        else:
            effect.changed.append(row.id)
            queues.append(row.queue_name)
            batch_ids.add(row.batch_id)
    if queues:
        notifications.notify_workers(cursor, queues)
        batches.open_again(cursor, batch_ids)
    done = {*effect.changed, *(job_id for job_id, _ in effect.conflicts)}
    if left := [job_id for job_id in ids if job_id not in done]:
        effect.kept = list(batch_retries.find_requeue_refusals(cursor, left))
    return effect


def reschedule_jobs(
    cursor: Cursor,
    ids: list[int],
    *,
    statuses: Collection[str] = (JobStatus.READY,),
    times: RunTimes,
) -> Effect:
    """Move waiting jobs to another time: *statuses* can name no others."""
    moved = jobs.reschedule_jobs(cursor, ids, **times)
    if moved:
        notifications.notify_workers(cursor, list(moved.values()))
    return Effect(list(moved))


def delete_jobs(cursor: Cursor, ids: list[int], statuses: Collection[str] = FINISHED) -> Effect:
    """Delete finished jobs, but for those that an open workflow or a waiting job needs."""
    return Effect(bulk.delete_jobs(cursor, ids, statuses=statuses))
