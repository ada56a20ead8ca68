"""How long a loop waits after a failed round trip, and what it logs."""

from __future__ import annotations

import logging
import random

import psycopg

from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# The first and the longest pause; it doubles with each failure.
SECONDS = (0.2, 5.0)
# The longest pause before a turn that conflicted with another worker's is repeated: no failure.
CROSSED_SECONDS = 0.005


class Backoff:
    """The failures of one loop since its last success."""

    def __init__(self, worker_name: str, what: str) -> None:
        self._worker_name = worker_name
        self._what = what
        self.failures = 0

    def note_failure(self, error: psycopg.Error) -> float:
        """Return for how many seconds to wait."""
        if trouble_of(error) is Trouble.CROSSED:
            return random.uniform(0, CROSSED_SECONDS)
        first, most = SECONDS
        pause = min(first * 2.0 ** min(self.failures, 10), most)
        level = logging.INFO if self.failures else logging.WARNING
        self.failures += 1
        reason = str(error).strip()
        logger.log(level, "worker=%s %s failed: %s", self._worker_name, self._what, reason)
        return pause * random.uniform(0.5, 1)

    def note_success(self) -> None:
        """Log that the database answers again, if it did not."""
        if self.failures:
            logger.info("worker=%s the database answers again", self._worker_name)
            self.failures = 0
