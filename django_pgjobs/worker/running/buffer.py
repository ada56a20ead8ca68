"""Claimed jobs that nothing has begun to run yet."""

from __future__ import annotations

from collections import deque

from django_pgjobs.worker.attempt import Attempt


class Buffer(deque[Attempt]):
    """A queue that its consumers empty from the left and the pump takes back from the right.

    Both ends are safe to use from different threads at once; whoever finds it empty has lost.
    """

    def take_first(self) -> Attempt | None:
        """Take the attempt whose turn it is, None if there is none."""
        try:
            return self.popleft()
        except IndexError:
            return None

    def take_back(self, claimed_before: float | None = None) -> list[Attempt]:
        """Take everything back, or nothing if the oldest was claimed after *claimed_before*.

        The time is one of `time.monotonic()`.
        """
        taken: list[Attempt] = []
        try:
            if claimed_before is not None and self[0].claimed_at >= claimed_before:
                return taken
            while True:
                taken.append(self.pop())
        except IndexError:
            return taken
