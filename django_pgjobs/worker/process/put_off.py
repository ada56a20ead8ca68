"""Schedules that a scheduler leaves alone for a while, so that the others have their turn."""

from __future__ import annotations

import math
from collections.abc import Iterable

# How long a schedule that cannot be planned here is left to other workers, ...
UNKNOWN_SECONDS = 10.0
# ... and one that the server refuses, or whose enqueue would wait for a lock; doubled each time.
FIRST_BLOCKED, LAST_BLOCKED = 1.0, 60.0


class PutOff:
    """Knows which schedules are left alone, and until when."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        # For how long each that was blocked was put off last.
        self._pauses: dict[str, float] = {}

    def names_at(self, now: float) -> list[str]:
        """Return those that are to be left alone now; forget the others."""
        self._until = {name: until for name, until in self._until.items() if until > now}
        return list(self._until)

    @property
    def retry_at(self) -> float:
        """When one that was blocked is to be tried again; infinite if there is none."""
        return min((self._until[n] for n in self._pauses if n in self._until), default=math.inf)

    def note_blocked(self, name: str, now: float) -> float:
        """Put a schedule off; return for how long."""
        pause = min(LAST_BLOCKED, 2 * self._pauses.get(name, FIRST_BLOCKED / 2))
        self._pauses[name] = pause
        self._until[name] = now + pause
        return pause

    def note_unknown(self, names: Iterable[str], now: float) -> None:
        """Leave schedules that cannot be planned here to others."""
        self._until.update(dict.fromkeys(names, now + UNKNOWN_SECONDS))

    def note_enqueued(self, names: Iterable[str]) -> None:
        """Note schedules that are blocked no longer."""
        for name in names:
            self._pauses.pop(name, None)
