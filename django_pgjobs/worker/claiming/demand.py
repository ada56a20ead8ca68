"""How many jobs to claim: what the free slots take, and a little more.

Beyond what its free slots take, a worker claims what it expects to run within PREFETCH_SECONDS, so
that short jobs do not wait for round trips and long ones are not hoarded.
"""

from __future__ import annotations

import time
from collections import Counter

from django_pgjobs.worker.running.async_slots import AsyncSlots
from django_pgjobs.worker.running.slots import Slots
from django_pgjobs.worker.state import WorkerState

PREFETCH_SECONDS = 0.05
# Measured: docs/performance.md#batch-size.
MAX_PREFETCH = 1_000


class Demand:
    """What the slots of one worker can take; it keeps nothing itself."""

    def __init__(self, state: WorkerState, slots: Slots, async_slots: AsyncSlots) -> None:
        self._state = state
        self._slots = slots
        self._async_slots = async_slots

    @property
    def prefetch(self) -> int:
        """How many jobs to hold beyond what the free slots take."""
        mean = self._slots.mean_duration
        concurrency = self._slots.most
        if mean is None or self._all_slots_are_long():
            return 0
        ahead = min(MAX_PREFETCH, int(concurrency * PREFETCH_SECONDS / max(mean, 1e-6)))
        limit = self._state.options.claim_limit
        return ahead if limit is None else min(ahead, limit)

    @property
    def low_water(self) -> int:
        """With as many jobs buffered or fewer, it is time to claim again."""
        return self.prefetch // 2

    @property
    def free(self) -> int:
        """How many slots run nothing."""
        return self._slots.most - len(self._slots.running)

    def buffered(self) -> int:
        """Return how many claimed jobs nothing has begun to run."""
        return len(self._slots.buffer) + len(self._async_slots.buffer)

    def wanted(self, *, waits: bool = False) -> int:
        """Return how many jobs to claim now, 0 for none.

        If the claim *waits* for its turn, the jobs in the buffer will have run by then.
        """
        state = self._state
        if state.stopping or state.quiet or self._async_slots.buffer:
            return 0
        if time.monotonic() >= state.danger_at:
            return 0
        buffered = len(self._slots.buffer)
        if buffered > self.low_water:
            return 0
        wanted = max(0, self.free + self.prefetch - (0 if waits else buffered))
        options = self._state.options
        if options.max_jobs is not None:
            left = options.max_jobs - self._state.finished_jobs - len(self._state.held)
            wanted = min(wanted, left)
        if options.claim_limit is not None:
            wanted = min(wanted, options.claim_limit)
        return max(0, wanted)

    def caps(self) -> dict[str, int]:
        """Return how many more jobs each queue with slots of its own may have here."""
        slots = self._state.options.queue_slots
        if not slots:
            return {}
        held = Counter(attempt.queue_name for attempt in list(self._state.held.values()))
        return {queue: max(0, most - held[queue]) for queue, most in slots.items()}

    def _all_slots_are_long(self) -> bool:
        running = list(self._slots.running)
        if len(running) < self._slots.most:
            return False
        newest = max(attempt.started_at for attempt in running)
        return time.monotonic() - newest > PREFETCH_SECONDS
