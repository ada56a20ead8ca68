"""Requests of other threads to the upkeep.

Each call appends to a deque; the upkeep's own thread takes what is there when it is woken.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from django_pgjobs.queries.claims import ClaimedRow

T = TypeVar("T")

# Requests of a kind that wait for an upkeep that cannot go on. Beyond that the oldest are
# forgotten: they are hints, and each worker looks at its poll interval, too.
MOST_WAITING = 10_000


class Errands:
    """Requests to the upkeep; safe from any thread."""

    def __init__(self) -> None:
        self._look_times: deque[float] = deque(maxlen=MOST_WAITING)
        self._freed: deque[str] = deque(maxlen=MOST_WAITING)
        # Carries wake-ups while the upkeep runs.
        self._pair: tuple[socket.socket, socket.socket] | None = None

    def look_by(self, time: float) -> None:
        """Ask for a look for jobs at *time*, of `time.monotonic()`, at the latest.

        This wakes nobody: there is no such look before the pump waits for news, and then it wakes
        the upkeep. A busy pump would wait for the interpreter's lock after each wake-up.
        """
        self._look_times.append(time)

    def note_ended(self, rows: Iterable[ClaimedRow]) -> None:
        """Note jobs that ended: others may wait for their keys."""
        lanes = {row.lane for row in rows if row.lane}
        is_first = bool(lanes) and not self._freed
        self._freed.extend(lanes)
        if is_first:
            self.wake()

    def wake(self) -> None:
        """Wake the upkeep."""
        pair = self._pair
        if pair is not None:
            # Full: a wake-up is under way. Closed: the upkeep has ended.
            with contextlib.suppress(OSError):
                pair[1].send(b"\0")

    # For the upkeep's thread

    def open(self) -> None:
        """Begin to receive wake-ups."""
        self._pair = socket.socketpair()
        for end in self._pair:
            end.setblocking(False)

    def close(self) -> None:
        """Receive no more wake-ups."""
        pair, self._pair = self._pair, None
        for end in pair or ():
            end.close()

    def wait(self, timeout: float | None, descriptor: int | None) -> None:
        """Sleep until somebody wakes or *descriptor* can be read, at most *timeout* seconds."""
        if self._pair is None:
            return
        poll = select.poll()
        poll.register(self._pair[0], select.POLLIN)
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if timeout is None else math.ceil(1000 * timeout))
        if any(end == self._pair[0].fileno() for end, _ in ready):
            self._pair[0].recv(4096)

    def take_look_time(self) -> float | None:
        """Return the earliest time that was asked for."""
        return min(_take_all(self._look_times), default=None)

    @property
    def has_freed(self) -> bool:
        """Have jobs with keys ended?"""
        return bool(self._freed)

    def take_freed(self) -> set[str]:
        """Return the lanes of jobs that ended."""
        return set(_take_all(self._freed))


def _take_all(waiting: deque[T]) -> list[T]:
    taken = []
    while waiting:
        taken.append(waiting.popleft())
    return taken
