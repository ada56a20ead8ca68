"""The watchdog: ends attempts that take too long, and connections that do not answer."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence

from django_pgjobs.exceptions import JobTimeout
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# How often the deadlines of our own statements are looked at while something is held.
LOOK_SECONDS = 5.0


class Watchdog(Role):
    """Interrupts attempts at their deadline; asks for a new process if one does not end."""

    name = "watchdog"

    def __init__(
        self,
        connections: Sequence[OwnConnection],
        *,
        grace: float,
        is_running: Callable[[Attempt], bool],
        on_stuck: Callable[[Attempt], None],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._connections = connections
        self._grace = grace
        self._is_running = is_running
        self._on_stuck = on_stuck
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._deadlines: list[tuple[float, int, Attempt, bool]] = []

    def watch(self, attempt: Attempt, timeout: float) -> None:
        """Interrupt the attempt *timeout* seconds from now."""
        attempt.deadline = time.monotonic() + timeout
        self._push(attempt.deadline, attempt, is_last=False)

    def expect_end(self, attempt: Attempt) -> None:
        """Report the attempt as stuck if it runs on for the grace time; it was interrupted."""
        self._push(time.monotonic() + self._grace, attempt, is_last=True)

    def _push(self, deadline: float, attempt: Attempt, *, is_last: bool) -> None:
        with self._lock:
            heapq.heappush(self._deadlines, (deadline, next(self._order), attempt, is_last))
            is_first = self._deadlines[0][2] is attempt
        if is_first:
            self.wake()

    def run(self) -> None:
        while not self.stop_requested:
            for attempt, is_last in self._take_due():
                if self._is_running(attempt):
                    self._end(attempt, is_last)
            for connection in self._connections:
                if connection.is_overdue():
                    logger.error("connection of role %s does not answer; cut", connection.role)
                    connection.cut()
            with self._lock:
                next_deadline = self._deadlines[0][0] if self._deadlines else float("inf")
            self.wait(min(LOOK_SECONDS, max(0.0, next_deadline - time.monotonic())))

    def _take_due(self) -> list[tuple[Attempt, bool]]:
        due = []
        with self._lock:
            while self._deadlines and self._deadlines[0][0] <= time.monotonic():
                _, _, attempt, is_last = heapq.heappop(self._deadlines)
                due.append((attempt, is_last))
        return due

    def _end(self, attempt: Attempt, is_last: bool) -> None:
        if is_last:
            self._on_stuck(attempt)
        elif attempt.interrupt(JobTimeout):
            logger.warning("job=%s timed out and is interrupted", attempt.id)
            self.expect_end(attempt)
