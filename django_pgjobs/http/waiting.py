"""Workers over HTTP that wait for jobs, and the thread that hears of new ones for all of them.

A request that waits holds no connection; under WSGI it holds its thread. A notification wakes one
of each sort of workers (same queues, same tasks) that serve the queue; one that finds jobs wakes
the next. All of them look every few seconds, by one look. Why no job is missed: a worker that waits
is known here, and before its last look the process listens and has its flag in the table set.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

import psycopg

from django_pgjobs.conf import get_conf
from django_pgjobs.http.deadlines import deadlines
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.notifications import JOBS_CHANNEL, send_subscription
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# A waiting request looks so often without having been woken, ...
LOOK_SECONDS = 5.0
# ... and so often where the process cannot hear of new jobs.
POLL_SECONDS = 0.5
# The thread ends when no request has waited for so long.
IDLE_SECONDS = 60.0
# How often the thread looks whether it is to end, and how long it waits after an error.
RETRY_SECONDS = 1.0
# How long its end is waited for.
END_SECONDS = 2.0

Sort = tuple[tuple[str, ...], frozenset[str]]


class Waiter:
    """A request that waits; *wake* lets it look, from any thread."""

    def __init__(
        self,
        worker_id: int,
        queues: tuple[str, ...],
        paths: frozenset[str],
        wake: Callable[[], None],
    ) -> None:
        self.worker_id = worker_id
        self.queues = queues
        self.sort: Sort = (queues, paths)
        self.wake = wake
        # It was woken, and has not looked yet.
        self.is_woken = False
        # Its worker has said goodbye.
        self.is_dismissed = False


class Waiters:
    """The requests that wait for jobs in this process, and the thread that hears for them."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know of nobody, as a process that was forked."""
        self._lock = threading.Lock()
        self._waiters: dict[Waiter, None] = {}
        self._places = 0
        self._thread: threading.Thread | None = None
        self._left_at = 0.0
        # Does the thread hear of new jobs?
        self.hears = False

    @property
    def pause(self) -> float:
        """How long to wait at most until the next look."""
        return LOOK_SECONDS if self.hears else POLL_SECONDS

    @contextlib.contextmanager
    def place(self) -> Iterator[bool]:
        """Take a place of those that may wait in a thread; give False if there is none."""
        with self._lock:
            has_place = self._places < get_conf().HTTP_MAX_WAITING
            self._places += has_place
        try:
            yield has_place
        finally:
            with self._lock:
                self._places -= has_place

    def enter(self, waiter: Waiter) -> None:
        """Wake this one from now on when there may be jobs for it."""
        with self._lock:
            self._waiters[waiter] = None
            if self._thread is None and get_conf().LISTEN:
                self._thread = threading.Thread(
                    target=self._run, name="pgjobs-http-listen", daemon=True
                )
                self._thread.start()

    def leave(self, waiter: Waiter, *, passes_on: bool) -> None:
        """Forget one; the next of its sort looks if this one was woken in vain, or *passes_on*."""
        with self._lock:
            self._waiters.pop(waiter, None)
            self._left_at = time.monotonic()
            if passes_on or waiter.is_woken:
                self._wake_one(waiter.sort)

    def note_looked(self, waiter: Waiter) -> bool:
        """Note that one is about to look; return whether it was woken for that."""
        with self._lock:
            was_woken, waiter.is_woken = waiter.is_woken, False
            return was_woken

    def is_first(self, waiter: Waiter) -> bool:
        """Has no other one of its sort waited for longer?"""
        with self._lock:
            return next((w for w in self._waiters if w.sort == waiter.sort), None) is waiter

    def tell(self, queue_name: str | None = None) -> None:
        """Wake one of each sort that serves the queue; all of them if none is named."""
        with self._lock:
            if queue_name is None:
                for waiter in self._waiters:
                    self._wake(waiter)
                return
            for sort in {w.sort for w in self._waiters if queue_name in w.queues}:
                self._wake_one(sort)

    def dismiss(self, worker_id: int) -> None:
        """Let a worker that has said goodbye wait here no longer."""
        with self._lock:
            for waiter in self._waiters:
                if waiter.worker_id == worker_id:
                    waiter.is_dismissed = True
                    waiter.wake()

    def _wake_one(self, sort: Sort) -> None:
        asleep = (w for w in self._waiters if w.sort == sort and not w.is_woken)
        if (waiter := next(asleep, None)) is not None:
            self._wake(waiter)

    def _wake(self, waiter: Waiter) -> None:
        waiter.is_woken = True
        waiter.wake()

    def end(self) -> None:
        """End the thread that listens, also if somebody waits; the next one begins it anew."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(END_SECONDS)
            self.hears = False

    # The thread that listens

    def _run(self) -> None:
        alias = get_conf().WORKER_DATABASE or job_database()
        connection = deadlines.watch(OwnConnection(alias, "listener"))
        try:
            while not self._ends():
                try:
                    self._listen(connection)
                except psycopg.Error as error:
                    logger.warning("http does not hear of new jobs: %s", str(error).strip())
                    self.hears = False
                    connection.close()
                    time.sleep(RETRY_SECONDS)
        finally:
            connection.close()

    def _listen(self, connection: OwnConnection) -> None:
        raw = connection.open()
        if not connection.is_direct:
            # Behind a pooler nobody hears; all look more often.
            time.sleep(RETRY_SECONDS)
            return
        connection.round_trip([lambda cursor: send_subscription(cursor, JOBS_CHANNEL, hears=True)])
        self.hears = True
        # What came before is for the look of each.
        self.tell()
        while not self._ends():
            for notification in raw.notifies(timeout=RETRY_SECONDS):
                self.tell(notification.payload)

    def _ends(self) -> bool:
        with self._lock:
            if self._thread is not threading.current_thread():
                # It was ended, and another one may have begun since.
                return True
            if self._waiters or time.monotonic() < self._left_at + IDLE_SECONDS:
                return False
            self._thread = None
            self.hears = False
            return True


waiting = Waiters()
os.register_at_fork(after_in_child=waiting.begin_anew)
