"""Whether the event loop moves: an async task that blocks it lets no other begin or go on.

Whoever hands jobs to the loop asks it to begin them; until it answers, it stands still. Then no
more async jobs are claimed, so that other workers run them, and a worker whose loop stands still
for long is not live.

While jobs run on it, the watchdog looks each second which of them has the loop, and asks whether
it moves. The log names a job that has had it at every look for some time; a job that only happens
to have it when somebody looks is not to blame.
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
        # Whose job has had the loop at each look since it was known to move, and since when; None
        # is what no job is known for, such as a callback.
        self._holder: Attempt | None = None
        self._held_since = WAITS
        self._is_told = False

    def ask(self) -> None:
        """Note that the loop is asked to begin jobs."""
        self._asked.append(time.monotonic())

    def answer(self) -> bool:
        """Note that it begins them; return whether it had stood still."""
        was_blocked, self._is_told = self.is_blocked, False
        self._asked.popleft()
        return was_blocked

    def look(self, attempt: Attempt | None) -> bool:
        """Note whose job has the loop; return whether to ask the loop if it moves."""
        now = time.monotonic()
        if self._held_since == WAITS or attempt is not self._holder:
            self._holder, self._held_since = attempt, now
        is_first = self._probed_at == WAITS
        if is_first:
            self._probed_at = now
        return is_first

    def note_move(self) -> None:
        """Note that it moves: it has answered the question of a look."""
        self._probed_at = self._held_since = WAITS
        self._holder, self._is_told = None, False

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

    def held_for(self, attempt: Attempt | None) -> float:
        """Return for how long a job that has the loop now has had it at each look."""
        if attempt is None or attempt is not self._holder:
            return 0.0
        return time.monotonic() - self._held_since

    def tell(self, thread_id: int) -> None:
        """Log once what blocks the loop, if something does: where its thread is, and whose job.

        If several block it in turn, none is named.
        """
        now = time.monotonic()
        is_one = now - self._held_since >= TOLD_SECONDS
        since = min(self.mark, self._probed_at)
        if self._is_told or not (is_one or now - since >= 2 * TOLD_SECONDS):
            return
        self._is_told = True
        attempt = self._holder if is_one else None
        (logger.of(attempt) if attempt else logger).warning(
            "%sthe event loop has stood still for %.0f s: until it moves, no async job begins, and"
            " none is claimed. An async task is not to call what blocks. It is here:\n%s",
            f"task={attempt.row.task_path} " if attempt else "",
            now - min(since, self._held_since),
            stack_of_thread(thread_id),
        )
