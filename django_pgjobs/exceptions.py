"""Every exception of the package.

Exception
├── JobError                 base of what concerns one job
│   ├── UnknownTask          a row names a task that this process does not have
│   ├── PayloadError         stored arguments cannot be decoded, or an outcome not stored
│   ├── WorkerLost           recorded when an attempt's worker disappeared
│   ├── ClaimLost            the attempt no longer owns its job
│   ├── DuplicateJob         a live job holds the unique key
│   ├── BatchSealed          the batch takes no more jobs (also a ValueError)
│   ├── BatchOpen            something of the workflow is unfinished
│   ├── DuplicateWorkflow    there is a workflow with the dedupe key
│   ├── UnknownBatch         there is no such batch (also a LookupError)
│   ├── RateLimited          the tokens are not available in time
│   └── UnknownRateLimit     the limit does not exist (also a LookupError)
├── JobSteering              raised by a task to choose its outcome
│   ├── Retry
│   ├── Discard
│   └── Snooze
├── ServerUnreachable        the database cannot be reached
└── TooSlow                  a page exceeded its statement timeout

BaseException
└── JobInterrupt             raised *into* a running task; not an Exception, so that
    ├── JobTimeout           `except Exception` in a task does not swallow it
    ├── JobCancelled
    ├── JobReleased
    └── LeaseLost
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from numbers import Real


class JobError(Exception):
    """Something is wrong with a job."""


class UnknownTask(JobError):
    """The task that a job names is not declared in this process."""


class PayloadError(JobError):
    """Stored arguments cannot be decoded, or a result cannot be stored."""


class WorkerLost(JobError):
    """The worker of the attempt disappeared: its lease ended before the job did."""


class ClaimLost(JobError):
    """The attempt does not own its job any more, so its work was rolled back."""


class DuplicateJob(JobError):
    """A job has the key, a live one of the task or one of the batch.

    *job_id*: that one, None if it is in the same call.
    """

    def __init__(self, reason: str = "", *, job_id: int | None = None) -> None:
        super().__init__(reason)
        self.job_id = job_id


class BatchSealed(JobError, ValueError):
    """The batch is sealed: it takes no more jobs, nor batches below it."""


class BatchOpen(JobError):
    """Something of the workflow is unfinished, so it is not deleted."""


class DuplicateWorkflow(JobError):
    """There is a workflow of the name with the dedupe key: *batch_id*, None if it is not seen."""

    def __init__(self, reason: str = "", *, batch_id: int | None = None) -> None:
        super().__init__(reason)
        self.batch_id = batch_id


class UnknownBatch(JobError, LookupError):
    """There is no batch with that id."""


class CallBackFailed(JobError):
    """A callback was not accepted, or its address is not one that is called."""


class RateLimited(JobError):
    """The tokens are not available in time, but in *retry_after* seconds."""

    def __init__(self, reason: str = "", *, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class UnknownRateLimit(JobError, LookupError):
    """The key has no row in the table of rate limits."""


class ServerUnreachable(Exception):
    """The database cannot be reached, or is not what the worker needs."""


class TooSlow(Exception):
    """A page exceeded its statement timeout."""


class JobSteering(Exception):
    """Base of the exceptions by which a task chooses its outcome."""


class Retry(JobSteering):
    """Fail the attempt and retry *after* seconds or a timedelta, by default the task's backoff.

    The attempt counts: after the last one the job fails.
    """

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        if isinstance(reason, Real | Decimal | timedelta):
            raise TypeError(f"expected reason to be text, got {reason!r}. Write Retry(after=...).")
        super().__init__(reason)
        self.after = seconds_or_none(after, name="after")


class Discard(JobSteering):
    """Fail the job now, whatever attempts are left; *reason* is recorded."""


class RemoteFailure(Exception):
    """What a worker over HTTP says of an attempt that failed; its text is the message.

    *kind* is the name of the error as it is called there, *trace* where it happened. *steering* is
    a Retry or Discard if the worker decides about the next attempt, None if the task does.
    """

    def __init__(
        self,
        kind: str,
        message: str = "",
        *,
        trace: str = "",
        steering: Retry | Discard | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.trace = trace
        self.steering = steering

    def is_called(self, exceptions: Iterable[type[BaseException]]) -> bool:
        """Has one of these classes its name, alone or with its module?"""
        names = {each.__qualname__ for each in exceptions}
        names |= {f"{each.__module__}.{each.__qualname__}" for each in exceptions}
        return self.kind in names


class Snooze(JobSteering):
    """Run the job again after *seconds* (or a timedelta); the attempt does not count."""

    def __init__(self, seconds: float | timedelta, reason: str = "") -> None:
        super().__init__(reason)
        given = seconds_or_none(seconds, name="seconds")
        if given is None:
            raise TypeError("expected seconds to be a number of seconds or a timedelta, got None.")
        self.seconds = given


def seconds_or_none(duration: object, *, name: str) -> float | None:
    """Return *duration*, the argument *name*, in seconds; None for None.

    Raise TypeError if it is neither a number nor a timedelta, and ValueError if it is negative or
    not finite.
    """
    if duration is None:
        return None
    if isinstance(duration, bool) or not isinstance(duration, Real | Decimal | timedelta):
        raise TypeError(
            f"expected {name} to be a number of seconds or a timedelta, got {duration!r}."
        )
    try:
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    except OverflowError:
        raise ValueError(f"expected {name} in seconds, got a number of 300 digits.") from None
    if not 0 <= seconds < math.inf:
        raise ValueError(f"expected {name} to be 0 seconds or more, and finite, got {seconds:g}.")
    return seconds


class JobInterrupt(BaseException):
    """Base of what the worker raises into a task that has to end."""


class JobTimeout(JobInterrupt):
    """The attempt ran longer than its timeout."""


class JobCancelled(JobInterrupt):
    """The job was cancelled while it was running."""


class JobExpired(Exception):
    """It was too late for the attempt to begin; raised and caught by the worker."""


class TokensTooOld(Exception):
    """The job took tokens and then waited too long for a slot; raised and caught by the worker."""


class DatabaseAway(Exception):
    """No transaction could be opened for the job; raised and caught by the worker."""


class JobReleased(JobInterrupt):
    """The worker shuts down and gives the job back; the attempt does not count."""


class LeaseLost(JobInterrupt):
    """The worker could not renew its lease, so the job may already run elsewhere."""
