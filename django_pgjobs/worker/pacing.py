"""When to look for jobs next.

A look that finds nothing is followed by another after 10, 20, 40 ... milliseconds, up to the
poll interval: a transaction that was open at the last look is met after at most as long again
as it lasted.
"""

from __future__ import annotations

FIRST_GAP_SECONDS = 0.01
# A worker that found nothing for so long says that it listens.
LISTEN_AFTER_SECONDS = 0.15
# One that found jobs for so long takes that back.
BUSY_SECONDS = 0.05


class Pace:
    """The time of the next look; times are those of `time.monotonic()`."""

    def __init__(self, poll_interval: float) -> None:
        self._poll_interval = poll_interval
        self._gap = FIRST_GAP_SECONDS
        self._busy_since: float | None = None
        self.look_at = 0.0

    def look_now(self) -> None:
        """Look at once, and often after that."""
        self._gap = FIRST_GAP_SECONDS
        self.look_at = 0.0

    def look_again(self) -> None:
        """Look at once."""
        self.look_at = 0.0

    def look_by(self, time: float) -> bool:
        """Look at *time* at the latest; return whether that is sooner than planned."""
        is_sooner = time < self.look_at
        self.look_at = min(self.look_at, time)
        return is_sooner

    def found_jobs(self, now: float, *, nothing_left: bool) -> None:
        """Note that a look claimed jobs."""
        self._gap = FIRST_GAP_SECONDS
        self._busy_since = self._busy_since or now
        self.look_at = now + self._gap if nothing_left else 0.0

    def found_nothing(self, now: float) -> None:
        """Note that a look claimed no job."""
        self._busy_since = None
        self.look_at = now + self._gap
        self._gap = min(self._gap * 2, self._poll_interval)

    @property
    def is_idle(self) -> bool:
        """Has nothing been found for long enough to ask for notifications?"""
        return self._gap >= min(LISTEN_AFTER_SECONDS, self._poll_interval)

    def is_busy(self, now: float) -> bool:
        """Have jobs been found for long enough to do without notifications?"""
        return self._busy_since is not None and now - self._busy_since > BUSY_SECONDS
