"""The watchdog: ends attempts that take too long, and connections that do not answer.

It also checks for an event loop that stands still.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

import psycopg

from django_pgjobs.exceptions import JobTimeout
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# How often it looks at the deadlines of our own statements, at the event loop, and which attempts
# have ended; and how often at most.
LOOK_SECONDS, LEAST_SECONDS = 1.0, 0.01
# A look goes through all that run; then it rests for so many times what that took, unless a
# deadline is added that comes earlier. At most LOOK_SECONDS: perhaps the process stood still.
REST = 9


class AtDeadline(Enum):
    """What is done at a deadline of an attempt that still runs."""

    INTERRUPT = "interrupt"
    CANCEL = "cancel its statement"
    GIVE_UP = "give up the process"


class Deadline(NamedTuple):
    """When to do something about an attempt, if it still runs then."""

    at: float
    attempt: Attempt
    step: AtDeadline


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
        on_look: Callable[[], None],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._connections = connections
        self._grace = grace
        self._is_running = is_running
        self._on_stuck = on_stuck
        self._on_look = on_look
        # Other threads add some.
        self._deadlines: deque[Deadline] = deque()
        self._looks_at = self._rests_until = 0.0

    def watch(self, attempt: Attempt, timeout: float) -> None:
        """Interrupt the attempt *timeout* seconds from now."""
        attempt.deadline = time.monotonic() + timeout
        self._push(attempt.deadline, attempt, AtDeadline.INTERRUPT)

    def expect_end(self, attempt: Attempt) -> None:
        """Report the attempt as stuck if it runs on for the grace time; it was interrupted.

        At half of the time its thread may still wait for an answer of the server.
        """
        now = time.monotonic()
        self._push(now + self._grace / 2, attempt, AtDeadline.CANCEL)
        self._push(now + self._grace, attempt, AtDeadline.GIVE_UP)

    def _push(self, at: float, attempt: Attempt, step: AtDeadline) -> None:
        self._deadlines.append(Deadline(at, attempt, step))
        if at < self._looks_at:
            self.wake()

    def run(self) -> None:
        while not self.stop_requested:
            for attempt, step in self._take_due():
                if self._is_running(attempt):
                    self._end(attempt, step)
            for connection in self._connections:
                if connection.is_overdue():
                    logger.error("connection of role %s does not answer; cut", connection.role)
                    connection.cut()
            self._on_look()
            self._rest()

    def _rest(self) -> None:
        """Wait for the next look; who adds a deadline before that wakes it, but not too early."""
        self.wait(max(0.0, self._looks_at - time.monotonic()))
        # Nobody need wake it again.
        self._looks_at = self._rests_until
        while (left := self._rests_until - time.monotonic()) > 0 and not self.stop_requested:
            self.wait(left)

    def _take_due(self) -> list[tuple[Attempt, AtDeadline]]:
        """Take the deadlines that have come, and decide when to look again.

        An attempt that has ended is not kept until its deadline, or soon there would be millions.
        """
        now, due = time.monotonic(), []
        # First, because who adds an earlier one from here on is to wake it.
        self._looks_at = now + LOOK_SECONDS
        for _ in range(len(self._deadlines)):
            deadline = self._deadlines.popleft()
            at, attempt, step = deadline
            if at <= now:
                due.append((attempt, step))
            elif step is not AtDeadline.INTERRUPT or self._is_running(attempt):
                self._deadlines.append(deadline)
                self._looks_at = min(self._looks_at, at)
        took = time.monotonic() - now
        rest = min(max(REST * took, LEAST_SECONDS), LOOK_SECONDS)
        self._rests_until = now + took + rest
        self._looks_at = max(self._looks_at, self._rests_until)
        return due

    def _end(self, attempt: Attempt, step: AtDeadline) -> None:
        if step is AtDeadline.GIVE_UP:
            self._on_stuck(attempt)
        elif step is AtDeadline.CANCEL:
            # In a thread of its own: a server that does not answer is not to hold up the others.
            thread = threading.Thread(
                target=_cancel_statement, args=[attempt], name="pgjobs-cancel", daemon=True
            )
            with suppress(RuntimeError):  # no thread is to be had
                thread.start()
        elif attempt.interrupt(JobTimeout):
            logger.of(attempt).warning("timed out and is interrupted")
            self.expect_end(attempt)


def _cancel_statement(attempt: Attempt) -> None:
    try:
        if attempt.cancel_statement():
            logger.of(attempt).info("is interrupted; its statement is cancelled")
    except psycopg.Error as error:
        logger.of(attempt).info("its statement cannot be cancelled: %s", error)
