"""Whether the event loop moves: an async task that blocks it lets no other begin or go on.

Whoever hands jobs to the loop asks it to begin them; until it answers, it stands still. While jobs
run on it, it is asked now and then whether it moves. Then no
more async jobs are claimed, so that other workers run them; the log says what blocks it; and a
worker whose loop stands still for long is not live.
"""

from __future__ import annotations

import time
from collections import deque

from django_pgjobs.worker.attempt import HOARD_SECONDS, Attempt
from django_pgjobs.worker.running.stacks import stack_of_thread
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.stillness import WAITS

logger = get_logger(__name__)

# Before what waits for the loop goes back, or as much would be claimed again at once.
BLOCKED_SECONDS = HOARD_SECONDS / 2
TOLD_SECONDS = 5.0


class LoopWatch:
    """What the loop was asked and has not answered. Safe from any thread."""

    def __init__(self) -> None:
        self._asked: deque[float] = deque()
        # When it was asked whether it moves, though no job waits for it.
        self._probed_at = WAITS
        self._is_told = False

    def ask(self) -> None:
        """Note that the loop is asked to begin jobs."""
        self._asked.append(time.monotonic())

    def answer(self) -> bool:
        """Note that it does; return whether it had stood still."""
        was_blocked, self._is_told = self.is_blocked, False
        self._asked.popleft()
        return was_blocked

    def probe(self) -> bool:
        """Note that the loop is asked whether it moves; return False if it was asked before."""
        if self._probed_at != WAITS:
            return False
        self._probed_at = time.monotonic()
        return True

    def note_move(self) -> None:
        """Note that it does."""
        self._probed_at, self._is_told = WAITS, False

    @property
    def mark(self) -> float:
        """A mark that stays the same while the loop stands still."""
        try:
            return self._asked[0]
        except IndexError:
            return WAITS

    @property
    def seconds(self) -> float:
        """How long the loop has not answered."""
        return max(0.0, time.monotonic() - self.mark)

    @property
    def is_blocked(self) -> bool:
        """Would a job that is claimed now wait for one that blocks the loop?"""
        return self.seconds > BLOCKED_SECONDS

    def tell(self, thread_id: int, attempt: Attempt | None) -> None:
        """Log once what blocks the loop, if something does: where its thread is, and whose job."""
        seconds = time.monotonic() - min(self.mark, self._probed_at)
        if self._is_told or seconds < TOLD_SECONDS:
            return
        self._is_told = True
        (logger.of(attempt) if attempt else logger).warning(
            "%sthe event loop has stood still for %.0f s: until it moves, no async job begins, and"
            " none is claimed. An async task is not to call what blocks. It is here:\n%s",
            f"task={attempt.row.task_path} " if attempt else "",
            seconds,
            stack_of_thread(thread_id),
        )
