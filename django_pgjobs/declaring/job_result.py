"""`JobResult`: the TaskResult of a job, which can wait for the job's end.

It asks on Django's connection, by primary key, with growing gaps: no connection of its own, no
LISTEN, no transaction between two looks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils.asyncio import async_unsafe

from django_pgjobs.compat import AnyResult, TaskResultDoesNotExist, TaskResultStatus
from django_pgjobs.context import current_job
from django_pgjobs.declaring.option_names import ResultNames
from django_pgjobs.exceptions import seconds_or_none
from django_pgjobs.queries import jobs
from django_pgjobs.queries.database import is_of_test_case, job_database
from django_pgjobs.status import FINISHED
from django_pgjobs.values.payload import shorten

# Seconds between two looks: the first gap, doubled up to the longest.
FIRST_GAP = 0.01
LONGEST_GAP = 0.5

_runs_jobs_here: ContextVar[bool] = ContextVar("django_pgjobs_runs_jobs_here", default=False)


@contextmanager
def running_jobs_here() -> Iterator[None]:
    """Note that no other job runs while one waits in this context; for tests."""
    token = _runs_jobs_here.set(True)
    try:
        yield
    finally:
        _runs_jobs_here.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult(ResultNames, AnyResult):  # type: ignore[misc]
    """A `django.tasks` TaskResult with `wait()`: what `enqueue()` and `get_result()` return."""

    @property
    def return_value(self) -> Any:
        """What the task returned; raise ValueError, with the last error, if there is nothing."""
        if self.status == TaskResultStatus.SUCCESSFUL:
            return super(JobResult, self).return_value  # slots: no super() without arguments
        raise ValueError(_why_nothing_returned(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.task.module_path}: {self.status}>"

    @async_unsafe("wait() cannot be called in async code. Write `await result.async_wait()`.")
    def wait(self, timeout: float | timedelta | None = None) -> JobResult:
        """Wait until the job is successful, failed or cancelled; return this result, refreshed.

        It looks at once, then with gaps of 10 ms doubling to 0.5 s. *timeout* is seconds or a
        timedelta, None: for ever; 0 looks once. A failed job raises nothing here: see `status`,
        `errors` and `return_value`.

        Raise TypeError or ValueError for a wrong *timeout*; TimeoutError when the time is over;
        TaskResultDoesNotExist if there is no such job (any more); RuntimeError where the job could
        not end: in an open transaction on the jobs' database, in the job itself, and in a TestCase
        or `run_jobs()` if it has not finished yet.
        """
        patience = _Patience(timeout)
        while (status := self._look()) is not None:
            time.sleep(patience.next_gap(self.id, status))
        return self

    async def async_wait(self, timeout: float | timedelta | None = None) -> JobResult:
        """Do as `wait`, in async code; `await` is a word of Python and cannot be its name."""
        patience = _Patience(timeout)
        look = sync_to_async(self._look, thread_sensitive=True)
        while (status := await look()) is not None:
            await asyncio.sleep(patience.next_gap(self.id, status))
        return self

    def _look(self) -> str | None:
        """Return the status of an unfinished job; None: it has finished, and is refreshed."""
        connection = connections[job_database()]
        self._refuse_transaction(connection)
        with connection.cursor() as cursor:
            status = jobs.get_job_status(cursor, int(self.id))
        try:
            if status is None:
                raise TaskResultDoesNotExist(self.id)
            if status in FINISHED:
                self.refresh()
                if self.is_finished:
                    return None
                # It was requeued between the two reads.
                status = str(self.status).lower()
        except TaskResultDoesNotExist:
            raise TaskResultDoesNotExist(
                f"there is no job {self.id}: it was pruned or deleted, or the transaction that "
                "enqueued it was rolled back or is still open."
            ) from None
        self._refuse_standstill(connection, status)
        return status

    def _refuse_transaction(self, connection: Any) -> None:
        """Raise RuntimeError in a transaction, but for that of a TestCase."""
        is_own = not all(map(is_of_test_case, connection.atomic_blocks))
        if is_own or not (connection.in_atomic_block or connection.get_autocommit()):
            raise RuntimeError(
                f"expected no open transaction on database {connection.alias!r} while waiting for "
                f"job {self.id}, got one. Workers do not see what is enqueued in it before it "
                "commits, and its locks may hold them up. Wait after the atomic() block; a view "
                "under ATOMIC_REQUESTS needs @transaction.non_atomic_requests, a task not to be "
                "atomic=True."
            )

    def _refuse_standstill(self, connection: Any, status: str) -> None:
        """Raise RuntimeError if nobody can run the job while this code waits."""
        try:
            is_itself = current_job().id == int(self.id)
        except LookupError:
            is_itself = False
        if is_itself:
            raise RuntimeError(f"job {self.id} waits for its own end, which would never come.")
        if _runs_jobs_here.get():
            raise RuntimeError(
                f"job {self.id} is {status}, and run_jobs() runs one job after the other, so none "
                "can wait for it. Let the second begin after the first: .using(after=[...])."
            )
        if connection.in_atomic_block:
            raise RuntimeError(
                f"job {self.id} is {status}, and no worker sees the transaction of a TestCase, so "
                "it would never end. Call run_jobs() of django_pgjobs.testing before wait()."
            )


def _why_nothing_returned(result: JobResult) -> str:
    # They begin as Django's sentences do.
    if result.status != TaskResultStatus.FAILED:
        return "Task has not finished yet. Call wait(), or refresh() later."
    if not result.errors:
        return "Task failed without an error: it was cancelled."
    last_line = result.errors[-1].traceback.strip().rpartition("\n")[2]
    return f"Task failed. Its last error: {shorten(last_line)}"


class _Patience:
    """How long to wait, and how long until the next look."""

    def __init__(self, timeout: float | timedelta | None) -> None:
        self.seconds = seconds_or_none(timeout, name="timeout")
        self._began = time.monotonic()
        self._gap = FIRST_GAP

    def next_gap(self, job_id: str, status: str) -> float:
        """Return the seconds until the next look; raise TimeoutError if the time is over."""
        gap = self._gap
        self._gap = min(2 * gap, LONGEST_GAP)
        if self.seconds is None:
            return gap
        left = self._began + self.seconds - time.monotonic()
        if left <= 0:
            raise TimeoutError(
                f"job {job_id} is still {status} after {self.seconds:g} s. "
                f"Job.objects.get(pk={job_id}).explain(), or manage.py jobs explain {job_id}, "
                "says why."
            )
        return min(gap, left)
