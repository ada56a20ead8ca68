"""Saying in the log which rate limits jobs wait for that do not exist."""

from __future__ import annotations

import time

from django_pgjobs.declaring.missing_limits import fact_of, remedy_for
from django_pgjobs.queries.rate_limits import MissingRate, send_missing_rates
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.turns.turn import Rows, Turn

logger = get_logger(__name__)

# How often a worker that knows of keys asks.
PAUSE_SECONDS = 60.0


class MissingLimits:
    """Logs each missing limit once until it is there; asks together with the look."""

    def __init__(self, worker_name: str) -> None:
        self._worker_name = worker_name
        self._ask_at = 0.0
        self.known: set[str] = set()

    def plan(self, turn: Turn, *, knows_of_keys: bool) -> None:
        """Add the question to the turn if it is time for it."""
        # Also when nobody waits any more for one that was told: it may be there by now.
        if (knows_of_keys or self.known) and time.monotonic() >= self._ask_at:
            turn.add(send_missing_rates, self._note)

    def _note(self, rows: Rows) -> None:
        self._ask_at = time.monotonic() + PAUSE_SECONDS
        told, self.known = self.known, set()
        for missing in map(MissingRate._make, rows):
            self.known.add(missing.key)
            if missing.key not in told:
                logger.warning(
                    "worker=%s %s %s", self._worker_name, fact_of(missing), remedy_for(missing)
                )
