"""What a running task may read and report: `current_job()`.

The worker owns the object behind it; through it a task reads its job, reports progress, and
finds out whether it should end.
"""

from __future__ import annotations

import json
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol

from django_pgjobs.values.payload import scrub


class RunningJob(Protocol):
    """What the worker's attempt offers to `CurrentJob`."""

    id: int
    claim: int
    batch_id: int | None
    attempt: int
    max_attempts: int
    queue_name: str
    waited: float
    correlation_id: str
    deadline: float | None
    started_at: float
    progress: str
    progressed_at: float
    longest_pause: float
    cancelling: bool
    losing: bool
    scheduled: str | None


class CurrentJob:
    """The job that is running in this thread or asyncio task."""

    __slots__ = ("_running",)

    def __init__(self, running: RunningJob) -> None:
        self._running = running

    @property
    def id(self) -> int:
        """The job's id."""
        return self._running.id

    @property
    def claim(self) -> int:
        """The fencing token of this attempt: another attempt of the job has another one."""
        return self._running.claim

    @property
    def batch_id(self) -> int | None:
        """The id of the batch that the job belongs to, None if it is in none."""
        return self._running.batch_id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._running.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts the job has in all, one more for each that was lost."""
        return self._running.max_attempts

    @property
    def queue_name(self) -> str:
        """The queue the job was enqueued to."""
        return self._running.queue_name

    @property
    def waited(self) -> float:
        """Seconds from when this attempt could have begun until a worker claimed the job.

        The backoff of a retry, and what was before a requeue, do not count.
        """
        return self._running.waited

    @property
    def correlation_id(self) -> str:
        """The id given with `using(correlation_id=...)`, empty without one."""
        return self._running.correlation_id

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that enqueued the job, None for any other job."""
        text = self._running.scheduled
        return None if text is None else str(json.loads(text)[0])

    @property
    def scheduled_for(self) -> datetime | None:
        """The occurrence of its schedule that the job is for, in UTC; None for any other job.

        However late it runs: a report of the day takes the day from here.
        """
        text = self._running.scheduled
        instant = None if text is None else json.loads(text)[1]
        return None if instant is None else datetime.fromisoformat(instant).astimezone(UTC)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the attempt times out, None without a timeout."""
        deadline = self._running.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    @property
    def deadline(self) -> float | None:
        """When the attempt times out, on the clock of `time.monotonic()`; None without timeout."""
        return self._running.deadline

    @property
    def is_cancelled(self) -> bool:
        """Whether the job was cancelled or the worker is losing its lease."""
        return self._running.cancelling or self._running.losing

    @property
    def heartbeat_ok(self) -> bool:
        """Whether the worker still holds its lease, as far as it knows."""
        return not self._running.losing

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report that *done* of *total* is done, in any unit; *total* None: nobody knows.

        The newest report is stored about once a second, outside the task's transaction. Of a
        *message* of more than 500 characters the middle is left out. Raise TypeError for what is no
        int or float, and ValueError for one that is not finite.
        """
        if not isinstance(done, int | float):
            raise TypeError(f"expected done to be a number, got {done!r}.")
        if not isinstance(total, int | float | None):
            raise TypeError(f"expected total to be a number or None, got {total!r}.")
        report = {"done": done, "total": total, "message": scrub(str(message), 500)}
        text = json.dumps(report, allow_nan=False)
        running = self._running
        # Reporting the same again is standing still.
        if text == running.progress:
            return
        now = time.monotonic()
        pause = now - (running.progressed_at or running.started_at)
        running.longest_pause = max(running.longest_pause, round(pause, 3))
        running.progressed_at = now
        running.progress = text


_current: ContextVar[CurrentJob | None] = ContextVar("django_pgjobs_current_job", default=None)


def current_job() -> CurrentJob:
    """Return the job that is running here; raise LookupError outside a job."""
    job = _current.get()
    if job is None:
        raise LookupError("current_job() was called outside a running job.")
    return job


def enter_job(running: RunningJob) -> None:
    """Make *running* the current job of this context; for the worker."""
    _current.set(CurrentJob(running))
