"""How many jobs to claim: for the threads, and for the event loop.

Each has room of its own, and a job is claimed only if its kind of slots has room. The kind is what
its row says; a job whose row is wrong runs all the same, and as long as it waits it takes up room
of both kinds.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable

from django_pgjobs.choosing import Rooms
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.async_slots import AsyncSlots
from django_pgjobs.worker.running.slots import Slots
from django_pgjobs.worker.state import WorkerState

NO_ROOM = Rooms(0, 0)


class Demand:
    """What the slots of one worker can take."""

    def __init__(
        self,
        state: WorkerState,
        slots: Slots,
        async_slots: AsyncSlots,
        is_behind: Callable[[], bool],
    ) -> None:
        self._state = state
        self._slots = slots
        self._async_slots = async_slots
        # Do so many ends of jobs wait for receivers that it is to claim no more?
        self._is_behind = is_behind

    def measure(self, distance: float) -> None:
        """Note for a turn of the pump how far the server is, and what waits for slots."""
        self._slots.measure(distance)
        self._async_slots.measure(distance)

    def is_low(self, attempt: Attempt) -> bool:
        """Do the slots of the attempt's kind need more jobs?"""
        slots = self._async_slots if attempt.is_async else self._slots
        return len(slots.buffer) <= slots.low_water

    @property
    def free(self) -> Rooms:
        """How many slots run nothing."""
        return Rooms(self._slots.free, self._async_slots.free)

    def buffered(self) -> int:
        """Return how many claimed jobs nothing has begun to run."""
        return len(self._slots.buffer) + len(self._async_slots.buffer)

    def rooms(self, *, waits: bool = False) -> Rooms:
        """Return how many jobs of each kind to claim now.

        If the claim *waits* for its turn, the jobs in the buffers will have run by then.
        """
        state, left = self._state, self._left()
        if state.stopping or state.quiet or left <= 0 or time.monotonic() >= state.danger_at:
            return NO_ROOM
        if self._is_behind():
            return NO_ROOM
        threads, loop = self._slots, self._async_slots
        return Rooms(
            min(left, threads.wanted(elsewhere=loop.strangers, waits=waits)),
            min(left, loop.wanted(elsewhere=threads.strangers, waits=waits)),
        )

    def in_all(self, rooms: Rooms) -> int:
        """Return how many jobs to claim of both kinds together."""
        return min(sum(rooms), self._left())

    def _left(self) -> int:
        """Return how many more jobs the worker is to run."""
        limit = self._state.options.max_jobs
        if limit is None:
            return sys.maxsize
        return limit - self._state.finished_jobs - len(self._state.held)

    def caps(self) -> dict[str, int]:
        """Return how many more jobs each queue with slots of its own may have here."""
        slots = self._state.options.queue_slots
        if not slots:
            return {}
        held = Counter(attempt.queue_name for attempt in list(self._state.held.values()))
        return {queue: max(0, most - held[queue]) for queue, most in slots.items()}
