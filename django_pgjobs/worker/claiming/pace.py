"""How long a worker leaves a costly read alone, so that it takes a share of the time only."""

from __future__ import annotations

from collections import deque

# All of the last reads may have been slow for another reason: jobs do not wait for longer.
MOST_SECONDS = 5.0


class Pace:
    """Says when to repeat one kind of read, by its duration and the median of the last three.

    One alone may have measured a process that was stopped (SIGSTOP, a machine that slept), or a
    server or a network that stood still; one that was fast shows that this is over.
    """

    def __init__(self, factor: int) -> None:
        """Pause for *factor* times what a read takes."""
        self._factor = factor
        self._last = deque([0.0] * 3, maxlen=3)
        # From when on it may be repeated, by `time.monotonic()`.
        self.open_at = 0.0

    def is_open(self, now: float) -> bool:
        """May the read be repeated?"""
        return now >= self.open_at

    def note(self, seconds: float, now: float, in_vain: float = 1.0) -> None:
        """Note that a read took so long.

        *in_vain* is the share of it that counts: a useful read tells how long others take, too.
        """
        self._last.append(seconds)
        counted = min(seconds, sorted(self._last)[1])
        self.open_at = now + min(self._factor * in_vain * counted, MOST_SECONDS)
