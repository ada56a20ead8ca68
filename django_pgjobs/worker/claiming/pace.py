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

    def pause_after(self, seconds: float, in_vain: float = 1.0) -> float:
        """Note that a read took so long; return for how many seconds not to repeat it.

        *in_vain* is the share of it that counts: a useful read tells how long others take, too.
        """
        self._last.append(seconds)
        counted = min(seconds, sorted(self._last)[1])
        return min(self._factor * in_vain * counted, MOST_SECONDS)
