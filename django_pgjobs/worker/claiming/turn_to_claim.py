"""The turn to claim jobs with keys, which one worker has at a time.

A worker whose turn it is not tries again a little later, or waits for its turn if it knows of
nothing else to do. A transaction of the project may hold the lock, too; then it does without.
"""

from __future__ import annotations

import random
from typing import NamedTuple

# While another worker claims jobs with keys, this one tries again after the first pause, which
# doubles up to the second.
PAUSES = (0.008, 0.064)
# How long claims do without what was locked, after one gave up waiting for the lock.
LOCKED_SECONDS = 1.0


class TurnToClaim(NamedTuple):
    """What one worker knows of its turn; each answer gives another value."""

    # How often in a row it was another worker's turn, and when to ask again.
    refused: int = 0
    ask_at: float = 0.0
    # Until when to do without rate limits, and without waiting.
    locked_until: float = 0.0

    def may_wait(self, now: float) -> bool:
        """Is it another worker's turn, and worth the wait?"""
        return self.refused > 0 and now >= self.locked_until

    def may_take_tokens(self, now: float) -> bool:
        """Does nobody hold the state of a rate limit, as far as is known?"""
        return now >= self.locked_until

    def asked(self, now: float, *, held: bool) -> TurnToClaim:
        """Return what is known after an answer: whether it was this worker's turn."""
        if held:
            return self._replace(refused=0, ask_at=0.0)
        first, most = PAUSES
        pause = random.uniform(0.5, 1) * min(first * 2**self.refused, most)
        return self._replace(refused=min(self.refused + 1, 10), ask_at=now + pause)

    def locked(self, now: float) -> TurnToClaim:
        """Return what is known after a claim that gave up waiting for a lock."""
        return self._replace(locked_until=now + LOCKED_SECONDS)
