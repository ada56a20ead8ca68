"""Changing a job that is enqueued: cancel, requeue, reschedule.

Everything runs on Django's own connection to the database of the jobs, inside whatever
transaction is open there. Nothing here waits for a row for longer than LOCKED_SECONDS or leaves the
transaction unusable: bad input is refused before the statement is sent.

Each raises ValueError for what is no job, and JobError if another transaction keeps the job locked
for that long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from django_pgjobs.exceptions import DuplicateJob, JobError
from django_pgjobs.queries import batch_retries, batches, jobs, notifications
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import FINISHED, UNFINISHED, JobStatus
from django_pgjobs.values.given import instant_or_delay
from django_pgjobs.values.job_ids import job_id_of
from django_pgjobs.values.twins import has_async_twin

# How long cancel(), requeue() and reschedule() retry while a worker writes the same row.
LOCKED_SECONDS = 2.0


def get_row(job_id: int, *, backend: str) -> jobs.JobRow | None:
    """Return a stored job of a backend alias, None if there is none."""
    with connections[job_database()].cursor() as cursor:
        return jobs.get_job(cursor, job_id, backend=backend)


@has_async_twin
def cancel(job: Any) -> bool:
    """Cancel a job, given the Job, its id or its TaskResult.

    A waiting job is cancelled at once; a running one is asked to end, and is cancelled when it
    does. Return False if it had finished or does not exist. Runs in the caller's transaction;
    the worker is notified at commit, and its upkeep interrupts the attempt (`Cancels`).

    Raise ValueError for what is no job, and JobError if its row is locked for two seconds.
    """
    job_id = job_id_of(job)
    with connections[job_database()].cursor() as cursor:
        before = _change_when_unlocked(
            cursor, job_id, UNFINISHED, lambda: jobs.cancel_jobs(cursor, [job_id])
        )
        if before == JobStatus.RUNNING:
            notifications.notify_cancelled(cursor)
    return before is not None


def cancel_all(ids: Collection[int]) -> None:
    """Cancel jobs as `cancel` does, by one statement but for those that are locked."""
    with connections[job_database()].cursor() as cursor:
        before = jobs.cancel_jobs(cursor, list(ids))
        if JobStatus.RUNNING in before.values():
            notifications.notify_cancelled(cursor)
    for job_id in ids:
        if job_id not in before:
            cancel(job_id)


@has_async_twin
def requeue(job: Any, *, run_after: datetime | timedelta | None = None) -> bool:
    """Give a finished job new attempts, given the Job, its id or its TaskResult.

    Its errors are kept, its result is not. It runs at *run_after*, an aware datetime or a timedelta
    from now, None: at once. Return False if it is not finished or does not exist. Runs in the
    caller's transaction.

    Raise DuplicateJob if a live job holds its unique key, JobError if its row is locked for two
    seconds or its workflow is being deleted, and TypeError or ValueError for what is no job or
    no time.
    """
    job_id = job_id_of(job)
    instant, delay = instant_or_delay(run_after)
    with connections[job_database()].cursor() as cursor:
        queue = _change_when_unlocked(
            cursor,
            job_id,
            FINISHED,
            lambda: _requeue(cursor, job_id, instant, delay),
        )
        if queue is not None:
            notifications.notify_workers(cursor, [queue])
    return queue is not None


@has_async_twin
def reschedule(job: Any, run_after: datetime | timedelta | None) -> bool:
    """Move a waiting job to another time, None for now; the job may be an id or TaskResult.

    *run_after* is an aware datetime or a timedelta from now. Return False if it is running or
    finished, or does not exist. Runs in the caller's transaction.

    Raise JobError if its row is locked for two seconds, and TypeError or ValueError for what is no
    job or no time.
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


def _requeue(
    cursor: Cursor, job_id: int, run_after: datetime | None, delay: float | None
) -> dict[int, str]:
    """Return id -> queue if the job has new attempts now."""
    requeued: dict[int, str] = {}
    rows = jobs.requeue_jobs(cursor, [job_id], run_after=run_after, delay=delay)
    root_id = None if rows else batch_retries.find_deleting_root(cursor, job_id)
    if root_id is not None:
        raise JobError(f"job {job_id} is not requeued: its workflow {root_id} is being deleted.")
    for row in rows:
        if row.twin_id is not None:
            raise DuplicateJob(
                f"job {job_id} cannot be requeued: job {row.twin_id} holds its unique key. Wait "
                "until that one has finished, or cancel it.",
                job_id=row.twin_id,
            )
        if row.queue_name is not None:
            requeued[row.id] = row.queue_name
            batches.open_again(cursor, [row.batch_id])
    return requeued


acancel = sync_to_async(cancel, thread_sensitive=True)
arequeue = sync_to_async(requeue, thread_sensitive=True)
areschedule = sync_to_async(reschedule, thread_sensitive=True)


def _change_when_unlocked(
    cursor: Cursor,
    job_id: int,
    statuses: Collection[str],
    change: Callable[[], dict[int, str]],
) -> str | None:
    """Return what *change* says of the job, None if its status is none of *statuses*.

    The statements skip locked rows: waiting for a row that a worker is moving to the other
    partition would end in a serialization error and abort the caller's transaction. So a
    change that met a lock is retried.
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
                f"job {job_id} is locked by another transaction, after "
                f"{LOCKED_SECONDS:g} s of retries. Try again when that transaction has ended."
            )
        time.sleep(0.01)
