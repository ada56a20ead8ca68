"""One attempt: a claimed job on its way through the worker."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from psycopg.pq import TransactionStatus

from django_pgjobs.exceptions import JobCancelled, JobInterrupt, LeaseLost
from django_pgjobs.queries.claims import ClaimedRow
from django_pgjobs.queries.sessions import ConnectionsOfThread

if TYPE_CHECKING:
    from django_pgjobs.compat import AnyTask

# How long the server may take to accept that a statement is cancelled.
CANCEL_SECONDS = 5.0

# A claimed job that no slot began within this time goes back to the queue.
HOARD_SECONDS = 0.5

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = (ctypes.c_ulong, ctypes.py_object)
# A null pointer: takes back an exception that has not been raised yet.
_NOTHING = ctypes.py_object()


class Trace(Protocol):
    """The spans of an attempt."""

    def run(self, function: Callable[[], None]) -> None:
        """Call a function as if in the attempt."""


class Attempt:
    """What the worker knows of a job it claimed; `context.CurrentJob` shows it to the task.

    An attempt is interrupted at most once. In a thread that is an exception raised at the
    next bytecode, so it can still be under way when the task has returned: `disarm` calls it
    back, and only after that is the attempt's end settled.

    It ends exactly once, though several may end it: its task, the watchdog, whoever gives its job
    back. The first to `take_end` says what it came to, unless the task's own transaction has stored
    that already.
    """

    __slots__ = (
        "_body",
        "_cancel_async",
        "_connections",
        "_has_ended",
        "_interruptible",
        "_lock",
        "_statement_lock",
        "_thread_id",
        "attempt",
        "batch_id",
        "cancelling",
        "claim",
        "claimed_at",
        "correlation_id",
        "deadline",
        "expires",
        "id",
        "in_doubt",
        "interrupted_by",
        "is_async",
        "longest_pause",
        "losing",
        "max_attempts",
        "process",
        "progress",
        "progressed_at",
        "queue_name",
        "reported",
        "row",
        "scheduled",
        "started_at",
        "task",
        "trace",
        "waited",
    )

    def __init__(
        self, row: ClaimedRow, task: AnyTask | None, max_attempts: int, *, is_async: bool
    ) -> None:
        self.row = row
        self.id = row.id
        self.claim = row.claim
        self.batch_id = row.batch_id
        self.attempt = row.attempts
        self.queue_name = row.queue_name
        self.max_attempts = max_attempts
        self.waited = row.waited
        self.correlation_id = row.correlation_id
        self.scheduled = row.scheduled
        self.task = task
        self.is_async = is_async  # Does it run on the event loop? The row only gives a hint.
        self.process = os.getpid()  # A process that the task forks has another.
        self.claimed_at = time.monotonic()
        # On the same clock: when it becomes too late for an attempt to begin. Counted from before
        # the claim was sent, so it may be a little early and never late.
        self.expires = math.inf if row.expires_in is None else row.asked_at + row.expires_in
        self.started_at = 0.0
        self.deadline: float | None = None
        # The progress that the task reported last, and what of it is written; when it last changed,
        # on the clock of time.monotonic(), and the longest pause between two changes.
        self.progress = self.reported = ""
        self.progressed_at = self.longest_pause = 0.0
        self.cancelling = self.losing = self.in_doubt = False
        self.interrupted_by: type[JobInterrupt] | None = None
        self.trace: Trace | None = None  # Its spans, if it is traced.
        self._lock = threading.Lock()
        self._has_ended = self._interruptible = False
        self._thread_id = 0
        # Its coroutine once that runs on the event loop, and the function that cancels it.
        self._cancel_async: Callable[[], object] | None = None
        self._body: Coroutine[Any, Any, Any] | None = None
        # Django's connections of its thread, while the attempt may use them.
        self._connections: Iterable[Any] = ()
        self._statement_lock = threading.Lock()

    @property
    def hint(self) -> bool:
        """The value for the row's `is_async` if the job is given back."""
        return self.row.is_async if self.task is None else self.is_async

    @property
    def takes_tokens(self) -> bool:
        """Did its claim take tokens of rate limits?"""
        return bool((self.row.lane or "").partition("\n")[2])

    def arm(self, cancel_async: Callable[[], object] | None = None) -> None:
        """Allow interruption from now on, in this thread or through *cancel_async*."""
        if cancel_async is None:
            self._connections = ConnectionsOfThread()
        with self._lock:
            self._cancel_async = cancel_async
            self._thread_id = threading.get_ident()
            self._interruptible = True
            pending = self.interrupted_by
        if pending is not None:
            raise pending

    def disarm(self) -> None:
        """Allow no interruption any more, and call back one that has not arrived yet."""
        with self._lock:
            self._interruptible = False
            self._body = None
            if self.interrupted_by is not None and self._cancel_async is None:
                _raise_in_thread(self._thread_id, _NOTHING)
            # It knows the attempt: a circle that only the garbage collector would find.
            self._cancel_async = None
        with self._statement_lock:
            self._connections = ()

    def enter_loop(self, body: Coroutine[Any, Any, Any]) -> None:
        """Note the coroutine that runs it on the event loop."""
        with self._lock:
            self._body = body

    def whereabouts(self) -> tuple[int, Coroutine[Any, Any, Any] | None] | None:
        """Return its thread's id and, on an event loop, its coroutine; None if nothing runs it.

        The attempt may end a moment later.
        """
        with self._lock:
            is_called = self._interruptible and (self._body is not None or not self.is_async)
            return (self._thread_id, self._body) if is_called else None

    def interrupt(self, reason: type[JobInterrupt]) -> bool:
        """Make the task end because of *reason*; return False if it was interrupted before."""
        self.cancelling = self.cancelling or reason is JobCancelled
        self.losing = self.losing or issubclass(reason, LeaseLost)
        with self._lock:
            if self.interrupted_by is not None:
                return False
            self.interrupted_by = reason
            if self._interruptible:
                if self._cancel_async is not None:
                    self._cancel_async()
                else:
                    _raise_in_thread(self._thread_id, reason)
            return True

    def take_end(self) -> bool:
        """Return True the first time: the caller says what the attempt came to."""
        with self._lock:
            is_first, self._has_ended = not self._has_ended, True
            return is_first

    def cancel_statement(self) -> bool:
        """Cancel the statement that the attempt's thread waits for; return False if there is none.

        `disarm` waits for the end of that, so that no statement of the thread's next job is
        cancelled. Raise psycopg.Error if the server cannot be asked.
        """
        is_asked = False
        with self._statement_lock:
            for connection in self._connections:
                raw = connection.connection if connection.vendor == "postgresql" else None
                if raw is not None and raw.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    raw.cancel_safe(timeout=CANCEL_SECONDS)
                    is_asked = True
        return is_asked
