"""How far back a pass of the pruner looks for old jobs.

Jobs of workflows stay as long as these, and others may have to stay, too, however old they are. To
read all of them in every pass would take longer the more there are. So after a pass over everything
the next ones read what has become old since, until one over everything would take a small part of
the time.
"""

from __future__ import annotations

import math
import time

# Seconds before the retention that are as good as for ever.
EVER = 1e11
# Nobody commits the end of a job later than so many seconds after it.
SLACK_SECONDS = 600.0
# A pass over everything that took d seconds is followed by the next one after so many times d.
PAUSE_FACTOR = 1_000


class Horizon:
    """The span that the passes over jobs of one status read."""

    def __init__(self) -> None:
        # When the last pass began that came to its end, and this one.
        self._began = self._pass_began = -math.inf
        self._whole_at = -math.inf
        self._is_whole = True

    def begin(self) -> float:
        """Begin a pass; return how many seconds before their retention jobs are looked for."""
        now = time.monotonic()
        self._is_whole = now >= self._whole_at
        span = EVER if self._is_whole else now - self._began + SLACK_SECONDS
        self._pass_began = now
        return span

    def end(self, seconds: float) -> None:
        """Note that all of the span was read, in a statement that took *seconds*."""
        self._began = self._pass_began
        if self._is_whole:
            self._whole_at = time.monotonic() + PAUSE_FACTOR * seconds
