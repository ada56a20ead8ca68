"""What one kind of slots takes: the threads of a worker, or its event loop.

Beyond what its free slots take, a worker claims what it expects to run within PREFETCH_SECONDS, so
that short jobs do not wait for round trips and long ones are not hoarded. The farther the server
is, the more that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.buffer import Buffer
from django_pgjobs.worker.running.outcome import Outcome
from django_pgjobs.worker.stillness import WAITS

PREFETCH_SECONDS = 0.05
# Bare SQL claimed and finished 60,800 jobs a second in batches of 1,000, 59,700 of 500 and 46,900
# of 100, in single runs on a busy machine.
MAX_PREFETCH = 1_000
# So many more for each of these seconds of a round trip.
FAR_SECONDS = 0.005
# However far the server is, no more is held ahead than should run in so long a time, ...
MAX_SECONDS = 0.25
# ... and no more jobs than these.
MOST_PREFETCH = 5_000
# The mean duration is that of jobs that took about so long together. On a busy machine a short one
# now and then takes a hundred times as long, and the next claim should not be small for it.
MEAN_SECONDS = 0.25


def most_ahead(distance: float) -> int:
    """Return how many jobs to hold ahead at most if a round trip takes so many seconds.

    No claim asks for more either, and as many outcomes may travel together.
    """
    return min(MOST_PREFETCH, int(MAX_PREFETCH * (1 + distance / FAR_SECONDS)))


class SlotCallbacks(NamedTuple):
    """What slots tell their worker: an attempt begins or has ended, they want more, they crashed.

    The first two are called by what runs the attempt.
    """

    on_start: Callable[[Attempt], None]
    on_done: Callable[[Attempt, Outcome], object]
    on_empty: Callable[[], None]
    on_crash: Callable[[str], None]


class Capacity:
    """How many slots of a kind there are, what they run and what waits for them."""

    def __init__(self, most: int, claim_limit: int | None, *, is_async: bool) -> None:
        self.most = most
        self.buffer = Buffer()
        self.running: set[Attempt] = set()
        # How many are on their way from the buffer to the running ones.
        self.beginning = 0
        # Seconds that recent jobs took; None before the first one. Of how many, and all together.
        self.mean_duration: float | None = None
        self._recent_jobs = self._recent_seconds = 0.0
        # When the last job began.
        self.begun_at = 0.0
        # As of the last turn of the pump, because they are asked for with every outcome. With as
        # many jobs in the buffer or fewer, it is time to claim again.
        self.low_water = 0
        # Seconds of a round trip.
        self.distance = 0.0
        # How many jobs wait here whose rows said that they are of the other kind.
        self.strangers = 0
        self._claim_limit = claim_limit
        self._is_async = is_async

    def note_begin(self, attempt: Attempt) -> None:
        """Take a job that begins into account."""
        self.running.add(attempt)
        self.begun_at = time.monotonic()

    def note_duration(self, seconds: float) -> None:
        """Take a job that has ended into account."""
        kept = max(0.0, 1 - seconds / MEAN_SECONDS)
        self._recent_seconds = kept * self._recent_seconds + seconds
        self._recent_jobs = kept * self._recent_jobs + 1
        self.mean_duration = self._recent_seconds / self._recent_jobs

    def measure(self, distance: float) -> None:
        """Note for a turn of the pump how far the server is, and what waits here."""
        self.distance = distance
        self.low_water = low_water_of(self.prefetch)
        self.strangers = sum(each.row.is_async != self._is_async for each in list(self.buffer))

    @property
    def free(self) -> int:
        """How many slots run nothing."""
        return self.most - len(self.running) - self.beginning

    @property
    def prefetch(self) -> int:
        """How many jobs to hold beyond what the free slots take."""
        mean = self.mean_duration
        if mean is None or self._all_slots_are_long():
            return 0
        seconds = min(MAX_SECONDS, PREFETCH_SECONDS + 2 * self.distance)
        ahead = min(most_ahead(self.distance), int(self.most * seconds / max(mean, 1e-6)))
        return ahead if self._claim_limit is None else min(ahead, self._claim_limit)

    def wanted(self, *, elsewhere: int = 0, waits: bool = False) -> int:
        """Return how many jobs to claim now, 0 for none.

        So many that were claimed for these slots wait *elsewhere*. If the claim *waits* for its
        turn, the jobs in the buffer will have run by then.
        """
        prefetch, buffered = self.prefetch, len(self.buffer) + elsewhere
        if buffered > low_water_of(prefetch):
            return 0
        wanted = max(0, self.free + prefetch - (0 if waits else buffered))
        # However many slots are free: an event loop begins one job after the other.
        most = self._claim_limit or most_ahead(self.distance)
        return min(wanted, most)

    @property
    def mark(self) -> float:
        """A mark that stays the same while something keeps all of these slots from beginning."""
        return WAITS

    def _all_slots_are_long(self) -> bool:
        return self.free <= 0 and time.monotonic() - self.begun_at > PREFETCH_SECONDS


def low_water_of(prefetch: int) -> int:
    """Return with how many jobs left of those ahead to claim again: then it is worth a claim."""
    return max(prefetch // 2, prefetch - MAX_PREFETCH // 2)
