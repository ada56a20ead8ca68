"""How long something has stood still, as far as somebody knows who looks at it now and then."""

from __future__ import annotations

import math
import time

# How often who watches something looks at it.
LOOK_SECONDS = 1.0
# The mark of what waits, which may take as long as it likes.
WAITS = math.inf


class Stillness:
    """Adds up the seconds between looks at a mark that stays the same.

    A pause between two looks counts for little, however long it was: then the one who looks stood
    still too, because the machine was paused, and has seen nothing.
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
