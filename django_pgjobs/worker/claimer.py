"""What to claim next: how many jobs, from which lanes, and from where in each.

**Floors.** While a transaction anywhere in the database holds an old snapshot, dead index
entries cannot be removed, and a scan from the head of the queue wades through all jobs that
ran since. So each lane is read from the position where the last batch ended, its floor. Jobs
that appear below a floor (a higher priority, a retry) are found by a scan from the head, which
follows when a batch comes back short and otherwise every HEAD_SCAN_SECONDS; but scans that have
become slow are made so rarely that they take a tenth of the time at most.

**Prefetch.** Beyond what its free slots take, a worker claims what it expects to run within
PREFETCH_SECONDS, so that short jobs do not wait for round trips and long ones are not hoarded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from django_pgjobs.queries.jobs import HEAD, ClaimedRow, Floor, Lane
from django_pgjobs.worker.event_loop import AsyncSlots
from django_pgjobs.worker.executor import Slots
from django_pgjobs.worker.state import WorkerState

PREFETCH_SECONDS = 0.05
# Measured: docs/performance.md#batch-size.
MAX_PREFETCH = 1_000
HEAD_SCAN_SECONDS = 1.0
# After a scan of d seconds there is none for this many times d.
SCAN_PAUSE_FACTOR = 9


class Claimer:
    """Decides each claim from what is free, what is known, and what came of the last one."""

    def __init__(self, state: WorkerState, slots: Slots, async_slots: AsyncSlots) -> None:
        self._state = state
        self._slots = slots
        self._async_slots = async_slots
        self._floors: dict[Lane, Floor] = {}
        self._lanes: set[Lane] = set()
        self._scan_due = 0.0
        # No scan from the heads before this time.
        self.scan_allowed_at = 0.0

    @property
    def prefetch(self) -> int:
        """How many jobs to hold beyond what the free slots take."""
        mean = self._slots.mean_duration
        concurrency = self._state.options.concurrency
        if mean is None or self._all_slots_are_long():
            return 0
        return min(MAX_PREFETCH, int(concurrency * PREFETCH_SECONDS / max(mean, 1e-6)))

    @property
    def low_water(self) -> int:
        """With as many jobs buffered or fewer, it is time to claim again."""
        return self.prefetch // 2

    def buffered(self) -> int:
        """Return how many claimed jobs nothing has begun to run."""
        return len(self._slots.buffer) + len(self._async_slots.buffer)

    def wanted(self) -> int:
        """Return how many jobs to claim now, 0 for none."""
        if self._state.stopping or self._async_slots.buffer:
            return 0
        buffered = len(self._slots.buffer)
        if buffered > self.low_water:
            return 0
        free = self._state.options.concurrency - len(self._slots.running)
        wanted = max(0, free + self.prefetch - buffered)
        limit = self._state.options.max_jobs
        if limit is not None:
            wanted = min(wanted, limit - self._state.finished_jobs - len(self._state.held))
        return max(0, wanted)

    def head_scan_is_due(self) -> bool:
        """Is it time to ask which lanes have jobs, and to read them from their heads?"""
        return time.monotonic() >= max(self._scan_due, self.scan_allowed_at)

    def request_head_scan(self) -> None:
        """Let the next claim that may do so read from the heads of the lanes."""
        self._scan_due = 0.0

    def note_scan(self, seconds: float) -> None:
        """Note that the heads were scanned, and how long that took."""
        now = time.monotonic()
        self._scan_due = now + HEAD_SCAN_SECONDS
        self.scan_allowed_at = now + SCAN_PAUSE_FACTOR * seconds

    def note_lanes(self, lanes: Iterable[Lane]) -> None:
        """Take over the lanes that a scan found."""
        self._lanes = {lane for lane in lanes if self._state.options.serves(lane)}

    def note_queue(self, queue_name: str) -> None:
        """Take over a queue that a notification named."""
        for backend in self._state.options.backends:
            lane = Lane(backend, queue_name)
            if self._state.options.serves(lane):
                self._lanes.add(lane)

    @property
    def has_lanes(self) -> bool:
        """Is any lane known to have jobs?"""
        return bool(self._lanes)

    def floors(self, *, from_heads: bool) -> dict[Lane, Floor]:
        """Return where to read each known lane from."""
        floors = {} if from_heads else self._floors
        return {lane: floors.get(lane, HEAD) for lane in sorted(self._lanes)}

    def note_claimed(self, rows: list[ClaimedRow], wanted: int, *, from_heads: bool) -> None:
        """Move the floors to where the batch ended.

        Only a full batch from the heads may lower a floor: there may be more where it ended.
        """
        is_full = len(rows) >= wanted
        ends = {Lane(row.backend, row.queue_name): Floor(-row.priority, row.id) for row in rows}
        for lane, end in ends.items():
            lowers = is_full and from_heads
            self._floors[lane] = end if lowers else max(end, self._floors.get(lane, HEAD))
        if not is_full and not from_heads:
            self.request_head_scan()

    def _all_slots_are_long(self) -> bool:
        running = list(self._slots.running)
        if len(running) < self._state.options.concurrency:
            return False
        newest = max(attempt.started_at for attempt in running)
        return time.monotonic() - newest > PREFETCH_SECONDS
