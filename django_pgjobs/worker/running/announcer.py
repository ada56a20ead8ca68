"""The announcer: sends `task_finished` once an outcome is stored, and Sentry's check-ins.

Receivers are the project's code, so they run in a thread of their own: not in the pump, which
they could block, and not in the slot, which has gone on to the next job by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from django_pgjobs.signals import leave_out_lines_of_django
from django_pgjobs.values.words import counted
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.calling import (
    announce_finish,
    find_end,
    wants_announcement,
)
from django_pgjobs.worker.running.check_ins import send_check_in, wants_check_in
from django_pgjobs.worker.running.housekeeping import (
    clean_connections,
    close_connections,
    drop_dead_connections,
)
from django_pgjobs.worker.running.outcome import Outcome
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# So many ends wait to be announced when a worker claims no more. A web process, whose workers claim
# by themselves, only says so.
MOST_WAITING = 10_000


class Announcer(Role):
    """Sends task_finished for finished jobs, as long as anybody listens.

    *on_caught_up* is called when it is not behind any more.
    """

    name = "announcer"

    def __init__(
        self, on_crash: Callable[[str], None], *, on_caught_up: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(on_crash)
        self._on_caught_up = on_caught_up
        # With each: is it known that it is stored?
        self._finished: deque[tuple[Attempt, Outcome, bool]] = deque()
        # Was it logged that it was behind?
        self._is_told = False

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        """Announce a stored outcome, if it is final and anybody listens."""
        if wants_announcement(outcome) or wants_check_in(attempt, outcome):
            self._add(attempt, outcome, is_stored=True)

    def add_doubtful(self, attempt: Attempt, outcome: Outcome) -> None:
        """Look whether an attempt has ended its job, and announce that."""
        self._add(attempt, outcome, is_stored=False)

    def _add(self, attempt: Attempt, outcome: Outcome, *, is_stored: bool) -> None:
        self._finished.append((attempt, outcome, is_stored))
        self.wake()
        if self.is_behind and not self._is_told:
            self._is_told = True
            logger.warning(
                "receivers of task_finished are slower than the jobs: %d ends wait for them",
                len(self._finished),
            )

    @property
    def is_behind(self) -> bool:
        """Do so many ends wait to be announced that a worker is to claim no more jobs?"""
        return len(self._finished) >= MOST_WAITING

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the loop, and log what it did not get to; return whether it ended."""
        has_ended = super().join(timeout)
        if left := len(self._finished):
            what = "task_finished is not sent for %s: its receivers take too long"
            logger.warning(what, counted(left, "job"))
        return has_ended

    def run(self) -> None:
        leave_out_lines_of_django()
        while True:
            while self._finished:
                was_behind = self.is_behind
                attempt, outcome, is_stored = self._finished.popleft()
                if was_behind and not self.is_behind:
                    self._on_caught_up()
                drop_dead_connections()
                end = outcome if is_stored else find_end(attempt, outcome)
                if end is not None:
                    announce_finish(attempt, end)
                    if wants_check_in(attempt, end):
                        send_check_in(attempt, end)
                clean_connections(attempt)
            if self.stop_requested:
                break
            self.wait(None)
        close_connections()
