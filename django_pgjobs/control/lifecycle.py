"""Changing a job that is enqueued: cancel, requeue, reschedule.

Everything runs on Django's own connection to the database of the jobs, inside whatever
transaction is open there. Nothing here waits for a row for longer than LOCKED_SECONDS or leaves the
transaction unusable: bad input is refused before the statement is sent.

Each raises ValueError for what is no job, and JobError if another transaction keeps the job locked
for that long.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async

from django_pgjobs.control.changing import (
    Change,
    Effect,
    RunTimes,
    cancel_jobs,
    requeue_jobs,
    reschedule_jobs,
    times_of,
)
from django_pgjobs.control.leaving import requeue_refusal
from django_pgjobs.exceptions import DuplicateJob, JobError
from django_pgjobs.queries import jobs
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.status import FINISHED, UNFINISHED, JobStatus
from django_pgjobs.values.job_ids import job_id_of
from django_pgjobs.values.twins import has_async_twin

# How long cancel(), requeue() and reschedule() retry while a worker writes the same row.
LOCKED_SECONDS = 2.0
LOCKED_GAP_SECONDS = 0.01


def get_row(job_id: int, *, backend: str) -> jobs.JobRow | None:
    """Return a stored job of a backend alias, None if there is none."""
    with job_cursor() as cursor:
        return jobs.get_job(cursor, job_id, backend=backend)


@has_async_twin
def cancel(job: Any) -> bool:
    """Cancel a job, given the Job, its id or its TaskResult.

    A waiting job is cancelled at once; a running one is asked to end, and is cancelled when it
    does. Return False if it had finished or does not exist. Runs in the caller's transaction;
    the worker is notified at commit, and its upkeep interrupts the attempt (`Cancels`).

    Raise ValueError for what is no job, and JobError if its row is locked for two seconds.
    """
    return _change_when_unlocked(job_id_of(job), UNFINISHED, cancel_jobs)


@has_async_twin
def requeue(job: Any, *, run_after: datetime | timedelta | None = None) -> bool:
    """Give a finished job new attempts, given the Job, its id or its TaskResult.

    Its errors are kept, its result is not. It runs at *run_after*, an aware datetime or a timedelta
    from now, None: at once. Return False if it is not finished or does not exist. Runs in the
    caller's transaction.

    Raise DuplicateJob if a live job holds its unique key, JobError if its row is locked for two
    seconds, its batch was cancelled (`Batch.retry` takes that back) or its workflow is being
    deleted, and TypeError or ValueError for what is no job or no time.
    """
    change = partial(_requeue, times=times_of(run_after))
    return _change_when_unlocked(job_id_of(job), FINISHED, change)


@has_async_twin
def reschedule(job: Any, run_after: datetime | timedelta | None) -> bool:
    """Move a waiting job to another time, None for now; the job may be an id or TaskResult.

    *run_after* is an aware datetime or a timedelta from now. Return False if it is running or
    finished, or does not exist. Runs in the caller's transaction.

    Raise JobError if its row is locked for two seconds, and TypeError or ValueError for what is no
    job or no time.
    """
    change = partial(reschedule_jobs, times=times_of(run_after))
    return _change_when_unlocked(job_id_of(job), {JobStatus.READY}, change)


def _requeue(
    cursor: Cursor, ids: list[int], *, statuses: Collection[str], times: RunTimes
) -> Effect:
    """Give a job new attempts; raise JobError if it never gets them."""
    effect = requeue_jobs(cursor, ids, statuses=statuses, times=times)
    for job_id, twin_id in effect.conflicts:
        if twin_id is not None:
            raise DuplicateJob(
                f"job {job_id} cannot be requeued: job {twin_id} holds its unique key. Wait "
                "until that one has finished, or cancel it.",
                job_id=twin_id,
            )
    for job_id in effect.kept:
        raise JobError(f"job {job_id} is not requeued: {requeue_refusal(cursor, job_id)}")
    return effect


acancel = sync_to_async(cancel, thread_sensitive=True)
arequeue = sync_to_async(requeue, thread_sensitive=True)
areschedule = sync_to_async(reschedule, thread_sensitive=True)


def _change_when_unlocked(job_id: int, statuses: Collection[str], change: Change) -> bool:
    """Change a job; return False if its status is none of *statuses*.

    The statements skip locked rows: waiting for a row that a worker is moving to the other
    partition would end in a serialization error and abort the caller's transaction. So a
    change that met a lock is tried again, for LOCKED_SECONDS; then JobError is raised.
    """
    deadline = time.monotonic() + LOCKED_SECONDS
    with job_cursor() as cursor:
        while not change(cursor, [job_id], statuses=statuses).changed:
            if jobs.get_job_status(cursor, job_id) not in statuses:
                return False
            if time.monotonic() > deadline:
                raise JobError(
                    f"job {job_id} is locked by another transaction, after "
                    f"{LOCKED_SECONDS:g} s of retries. Try again when that transaction has ended."
                )
            time.sleep(LOCKED_GAP_SECONDS)
    return True
