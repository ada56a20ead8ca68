"""How far back a pass of the pruner looks for old jobs.

Jobs of workflows stay as long as their workflow, and others may have to stay, too, however old they
are. Reading all of them in every pass would take longer and longer. So after a full pass the next
ones read only what has become old since, until a full pass would take a small part of the time
again.
"""

from __future__ import annotations

import math
import time

# A span, in seconds, that stands for no limit.
EVER = 1e11
# A job's end is committed at most so many seconds after it.
SLACK_SECONDS = 600.0
# After a full pass that took d seconds the next one follows after this many times d.
PAUSE_FACTOR = 1_000


class Horizon:
    """The span that the passes over jobs of one status read."""

    def __init__(self) -> None:
        # When the last complete pass began, and this one.
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
