"""How long something has stood still, measured by looking at it now and then."""

from __future__ import annotations

import math
import time

# How often a watcher looks.
LOOK_SECONDS = 1.0
# The mark of a part that waits, which may take any time.
WAITS = math.inf


class Stillness:
    """Adds up the seconds between looks at a mark that stays the same.

    A long pause between two looks counts for little: then the watcher stood still, too, because the
    machine was paused, and has seen nothing.
    """

    def __init__(self) -> None:
        self._mark = WAITS
        self._looked_at = time.monotonic()
        # As of the last look.
        self.seconds = 0.0

    def look(self, mark: float) -> float:
        """Return for how long the mark has been what it is."""
        now = time.monotonic()
        step = min(now - self._looked_at, 2 * LOOK_SECONDS)
        is_moving = mark == WAITS or mark != self._mark
        self.seconds = 0.0 if is_moving else self.seconds + step
        self._mark, self._looked_at = mark, now
        return self.seconds
