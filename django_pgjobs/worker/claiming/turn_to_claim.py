"""The turn to claim jobs with keys, which one worker has at a time.

A worker whose turn it is not tries again a little later, or waits for its turn if it knows of
nothing else to do. A transaction of the project may hold the lock, too; then it does without.
"""

from __future__ import annotations

import random

# While another worker claims jobs with keys, this one tries again after the first pause, which
# doubles up to the second.
PAUSES = (0.008, 0.064)
# How long claims do without what was locked, after one gave up waiting for the lock.
LOCKED_SECONDS = 1.0


class TurnToClaim:
    """What one worker knows of its turn."""

    def __init__(self) -> None:
        # How often in a row it was another worker's turn, and when to ask again.
        self._refused = 0
        self.ask_at = 0.0
        # Until when to do without rate limits, and without waiting.
        self._locked_until = 0.0

    def may_wait(self, now: float) -> bool:
        """Is it another worker's turn, and worth the wait?"""
        return self._refused > 0 and now >= self._locked_until

    def may_take_tokens(self, now: float) -> bool:
        """Does nobody hold the state of a rate limit, as far as is known?"""
        return now >= self._locked_until

    def note(self, now: float, *, held: bool) -> None:
        """Note whether it was this worker's turn."""
        if held:
            self._refused, self.ask_at = 0, 0.0
            return
        first, most = PAUSES
        self.ask_at = now + random.uniform(0.5, 1) * min(first * 2**self._refused, most)
        self._refused = min(self._refused + 1, 10)

    def note_locked(self, now: float) -> None:
        """Note that a claim gave up waiting for a lock."""
        self._locked_until = now + LOCKED_SECONDS
