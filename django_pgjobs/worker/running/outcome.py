"""What an attempt came to: from a return value or an exception to what is written."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any

from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.declaring.retries import DEFAULT_BACKOFF, LONGEST_DELAY_SECONDS, delay_after
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.exceptions import (
    ClaimLost,
    DatabaseAway,
    Discard,
    JobCancelled,
    JobExpired,
    JobInterrupt,
    JobReleased,
    LeaseLost,
    PayloadError,
    RemoteFailure,
    Retry,
    Snooze,
    TokensTooOld,
    UnknownTask,
    WorkerLost,
)
from django_pgjobs.queries.expiry import EXPIRED
from django_pgjobs.queries.filling import Control
from django_pgjobs.queries.jobs import FREE_INTERRUPTIONS
from django_pgjobs.results import exception_path
from django_pgjobs.status import JobStatus
from django_pgjobs.values import notes
from django_pgjobs.values.payload import encode_result, scrub
from django_pgjobs.values.words import with_text
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# A row of an unknown task is offered again after as long as it has waited, within these bounds.
UNKNOWN_TASK_SECONDS = (5.0, 300.0)
MAX_MESSAGE = 1_000

# As the interpreter has it, whatever a class says.
CAUSE: Any = vars(BaseException)["__cause__"]

AT_SHUTDOWN = "released at shutdown"
NO_SLOT = "given back: no slot became free"
NO_CONNECTION = "given back: no connection for its transaction"
# When such a job is offered again: the server may be away, or have no room.
NO_CONNECTION_SECONDS = 10.0


class Kind(StrEnum):
    """The outcomes of an attempt, by their words in the log: those of failures are in capitals."""

    DONE = "done"
    FAIL = "FAIL"
    RETRY = "RETRY"
    CANCEL = "cancel"
    EXPIRE = "expire"
    SNOOZE = "snooze"
    RELEASE = "release"
    UNKNOWN = "unknown"
    FILL = "fill"
    LOST = "lost"
    LEFT = "left"


@dataclass(slots=True)
class Outcome:
    """How an attempt ended; *error* and *result* are JSON text, empty for none.

    *interrupted*: the job was begun, and ends or is handed back because of the worker.
    *replaced*: the outcome that the server refuses, instead of which it is written.
    *control*: what the job is to have before it begins.
    *leaves_batch*: it is stored, and its batch is still to be counted.
    """

    kind: Kind
    result: str = ""
    error: str = ""
    note: str = ""
    delay: float | None = None
    exception: BaseException | None = None
    duration: float = 0.0
    ended_at: float = field(default_factory=time.monotonic)
    interrupted: bool = False
    stored: bool = False
    sent: bool = False
    replaced: Outcome | None = None
    control: Control | None = None
    leaves_batch: bool = False
    # When to write it again if its row is locked or refused, and how long after the last time.
    due: float = 0.0
    pause: float = 0.0

    @property
    def status(self) -> JobStatus | None:
        """The status the job is finished with, None if it runs again."""
        return _STATUS.get(self.kind)

    def put_off(self, first: float, most: float) -> None:
        """Write it again after *first* seconds, which double with each time up to *most*."""
        self.pause = min(max(2 * self.pause, first), most)
        self.due = time.monotonic() + self.pause

    @property
    def is_handed_on(self) -> bool:
        """Is its job given back because this worker cannot run it now?"""
        return self.kind is Kind.RELEASE and not self.delay

    @property
    def takes_key(self) -> bool:
        """Does it give the job a unique key, for which it may have to wait?"""
        return self.control is not None and self.control.unique_key is not None


# What an attempt came to.
Entry = tuple[Attempt, Outcome]

_STATUS = {
    Kind.DONE: JobStatus.SUCCESSFUL,
    Kind.FAIL: JobStatus.FAILED,
    Kind.CANCEL: JobStatus.CANCELLED,
    Kind.EXPIRE: JobStatus.CANCELLED,
}


def success(value: object, max_bytes: int) -> Outcome:
    """Return the outcome of a task that returned *value*.

    Raise PayloadError, with which the job fails at once, if the value cannot be stored: what the
    task did is done, and running it again would not help.
    """
    try:
        return Outcome(Kind.DONE, result=encode_result(value, max_bytes) or "")
    except JobInterrupt:
        raise
    except BaseException as error:  # a value may raise anything when it is looked at
        # The message names the place in the value; our own frames help nobody.
        cause = None if issubclass(type(error), TypeError | ValueError) else error
        raise PayloadError(
            f"the task ended, but what it returned cannot be stored: {_text_of(error)} "
            "It is not run again. Return None, or what JSON can hold."
        ) from cause


def released(note: str) -> Outcome:
    """Return the outcome of a job that is handed back without its attempt counting."""
    return Outcome(Kind.RELEASE, note=note)


def filled(control: Control) -> Outcome:
    """Return the outcome of a job that gets what its task declares instead of a run."""
    return Outcome(Kind.FILL, control=control, note="given what its task declares")


def interrupted(attempt: Attempt, note: str) -> Outcome:
    """Return the outcome of a job that was begun and cannot go on because of the worker.

    It is handed back, or fails if it was its last attempt and the interruption is not free.
    """
    is_free = attempt.row.interruptions < FREE_INTERRUPTIONS
    if is_free or attempt.attempt < attempt.max_attempts:
        return Outcome(Kind.RELEASE, note=note, interrupted=True)
    error = WorkerLost(
        f"the end of a worker or of its lease interrupted the last of {attempt.max_attempts} "
        f"attempts; {FREE_INTERRUPTIONS} interruptions are free, and there were as many before."
    )
    return Outcome(
        Kind.FAIL, error=describe(attempt, error), note=note, exception=error, interrupted=True
    )


def left_to_others() -> Outcome:
    """Return the outcome of a claimed job that only workers over HTTP may run."""
    return Outcome(Kind.UNKNOWN, delay=UNKNOWN_TASK_SECONDS[0], note=notes.REMOTE_TASK)


def left_running(duration: float = 0.0) -> Outcome:
    """Return the outcome of a job that may have ended its process: the rescue counts the loss."""
    note = "left to the rescue: the process ends because of what it ran"
    return Outcome(Kind.LEFT, note=note, duration=duration)


def of_exception(
    attempt: Attempt, error: BaseException, make_result: Callable[[], Any], *, unknown_fails: bool
) -> Outcome:
    """Return the outcome of an attempt that ended with *error*.

    The pump writes it: give_back_jobs.sql if the job is to run again, else finish_unsuccessful.sql.
    """
    if isinstance(error, JobReleased):
        return interrupted(attempt, AT_SHUTDOWN)
    if isinstance(error, LeaseLost):
        return interrupted(attempt, "given back: the lease was not renewed")
    if isinstance(error, ClaimLost):
        return Outcome(Kind.LOST, exception=error)
    if isinstance(error, JobCancelled) or attempt.interrupted_by is JobCancelled:
        return Outcome(Kind.CANCEL, note="cancelled while running", exception=error)
    if isinstance(error, JobExpired):
        return Outcome(Kind.EXPIRE, note=EXPIRED)
    if isinstance(error, TokensTooOld):
        return released(NO_SLOT)
    if isinstance(error, DatabaseAway):
        note = scrub(f"{NO_CONNECTION}: {error}", MAX_MESSAGE)
        return Outcome(Kind.RELEASE, delay=NO_CONNECTION_SECONDS, note=note)
    if isinstance(error, Snooze):
        note = scrub(with_text(notes.SNOOZED, error), MAX_MESSAGE)
        return Outcome(Kind.SNOOZE, delay=min(error.seconds, LONGEST_DELAY_SECONDS), note=note)
    if isinstance(error, UnknownTask) and attempt.task is None and not unknown_fails:
        delay = min(max(attempt.row.waited, UNKNOWN_TASK_SECONDS[0]), UNKNOWN_TASK_SECONDS[1])
        return Outcome(Kind.UNKNOWN, delay=delay, note=notes.UNKNOWN_TASK, exception=error)
    return _retried(attempt, error, _retry_delay(attempt, error, make_result))


def of_trouble(attempt: Attempt, error: BaseException, make_result: Callable[[], Any]) -> Outcome:
    """Return the outcome of a job that could not begin because of *error*, which may pass.

    It counts as an attempt that failed and is tried again, whatever the task's retry_on says.
    """
    is_last = attempt.attempt >= attempt.max_attempts
    return _retried(attempt, error, None if is_last else _backoff(attempt, error, make_result))


def _retried(attempt: Attempt, error: BaseException, delay: float | None) -> Outcome:
    entry = describe(attempt, error)
    # A retry after the job has expired is none: it fails now.
    if delay is None or time.monotonic() + delay >= attempt.expires:
        return Outcome(Kind.FAIL, error=entry, exception=error)
    wrong = what_went_wrong(error)
    name = wrong.kind if isinstance(wrong, RemoteFailure) else type(wrong).__qualname__
    note = scrub(f"{notes.RETRY} {name}", MAX_MESSAGE)
    return Outcome(Kind.RETRY, error=entry, delay=delay, note=note, exception=error)


def _retry_delay(
    attempt: Attempt, error: BaseException, make_result: Callable[[], Any]
) -> float | None:
    task = attempt.task
    ours = task if isinstance(task, Task) else None
    # A worker over HTTP decides about the retry as far as a task does by what it raises here.
    steering = error.steering if isinstance(error, RemoteFailure) else error
    if isinstance(steering, Discard | PayloadError | WorkerLost | UnknownTask):
        return None
    if attempt.attempt >= attempt.max_attempts:
        return None
    if isinstance(steering, Retry):
        if steering.after is not None:
            return min(steering.after, LONGEST_DELAY_SECONDS)
        return _backoff(attempt, error, make_result)
    retry_on = ours.retry_on if ours else (Exception,)
    discard_on = ours.discard_on if ours else ()
    is_ours = attempt.interrupted_by is not None
    if _is_one_of(error, discard_on) or not (is_ours or _is_one_of(error, retry_on)):
        return None
    return _backoff(attempt, error, make_result)


def _is_one_of(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    """Is it one of these, or named as one by a worker over HTTP?"""
    if isinstance(error, RemoteFailure) and error.is_called(classes):
        return True
    return isinstance(error, classes)


def _backoff(
    attempt: Attempt, error: BaseException, make_result: Callable[[], Any]
) -> float | None:
    backoff = attempt.task.backoff if isinstance(attempt.task, Task) else DEFAULT_BACKOFF
    try:
        return delay_after(backoff, attempt=attempt.attempt, error=error, make_result=make_result)
    except Exception:
        logger.of(attempt).exception(
            "backoff of %s raised; the default is used", attempt.row.task_path
        )
        return DEFAULT_BACKOFF.delay(attempt.attempt)


def describe(attempt: Attempt, error: BaseException) -> str:
    """Return the JSON text of one entry of a job's errors; the server adds worker and times.

    Never raises, though everything about an exception can be broken, its str() included.
    """
    if isinstance(error, RemoteFailure):
        return json.dumps(
            {
                "exception_class": scrub(error.kind, MAX_MESSAGE),
                "message": scrub(str(error), MAX_MESSAGE),
                "traceback": scrub(error.trace),
                "attempt": attempt.attempt,
            }
        )
    wrong = what_went_wrong(error)
    entry = {
        "exception_class": _safely(lambda: exception_path(type(wrong)), "builtins.Exception"),
        "message": scrub(_text_of(wrong), MAX_MESSAGE),
        "traceback": scrub(_safely(lambda: _format(error), "(its traceback failed to format)\n")),
        "attempt": attempt.attempt,
    }
    return json.dumps(entry)


def what_went_wrong(error: BaseException) -> BaseException:
    """Return the exception by which people know a failure: `raise Retry from error` only asks for
    another attempt, as does one from that. The traceback has all of them.
    """
    met: set[int] = set()
    while isinstance(error, Retry) and id(error) not in met:
        met.add(id(error))
        cause = CAUSE.__get__(error)
        error = error if cause is None else cause
    return error


def _text_of(error: BaseException) -> str:
    return _safely(lambda: str(error), "(its str() failed)")


def _format(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, traceback_of(error)))


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return a traceback from the task's own frame on.

    The worker's own frames help nobody.
    """
    start = error.__traceback__
    while start is not None and start.tb_next is not None and _is_ours(start):
        start = start.tb_next
    return start


def _is_ours(frame: TracebackType) -> bool:
    module = str(frame.tb_frame.f_globals.get("__name__", ""))
    return module.startswith(("django_pgjobs.worker.", f"{TASKS_PACKAGE}."))


def _safely(make: Callable[[], str], otherwise: str) -> str:
    try:
        text = make()
        return text if isinstance(text, str) else otherwise
    except BaseException:
        return otherwise
