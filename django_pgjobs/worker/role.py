"""The contract of a role: start, wake, stop, and never end by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.stillness import WAITS

logger = get_logger(__name__)


class Role:
    """A loop in a thread of its own.

    A subclass implements `run`, which returns soon after `stop_requested` becomes true. If it
    raises instead, *on_crash* is told: a worker ends, because one that lost a role must not look
    alive.
    """

    name = "role"

    def __init__(self, on_crash: Callable[[str], None]) -> None:
        self._on_crash = on_crash
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.stop_requested = False
        # When the loop last made a step.
        self.moved_at = WAITS

    def start(self) -> None:
        """Start the loop."""
        self._thread = threading.Thread(target=self._guarded, name=f"pgjobs-{self.name}")
        self._thread.daemon = True
        self._thread.start()

    def wake(self) -> None:
        """Wake the loop; cheap when it is awake already."""
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        """Ask the loop to end."""
        self.stop_requested = True
        self.wake()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the loop; return whether it ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def end(self, timeout: float) -> bool:
        """Ask the loop to end, and wait for it; return whether it ended."""
        self.stop()
        return self.join(timeout)

    def wait(self, timeout: float | None) -> None:
        """Sleep until `wake`, at most *timeout* seconds."""
        self.moved_at = WAITS
        self._sleep(timeout)
        self.moved_at = time.monotonic()

    def note_move(self) -> None:
        """Note that the loop moves, in the middle of a step that may take long."""
        self.moved_at = time.monotonic()

    @contextmanager
    def code_of_project(self) -> Iterator[None]:
        """While code of the project runs in this thread, which may take any time."""
        self.moved_at = WAITS
        try:
            yield
        finally:
            self.moved_at = time.monotonic()

    def _sleep(self, timeout: float | None) -> None:
        self._wake.wait(timeout)
        self._wake.clear()

    def run(self) -> None:
        """Do the work of the role."""
        raise NotImplementedError

    def _guarded(self) -> None:
        self.moved_at = time.monotonic()
        try:
            self.run()
        except BaseException:
            # First of all, because what comes after might not be reached.
            self._on_crash(self.name)
            logger.critical("role=%s crashed", self.name, exc_info=True)
        finally:
            self.moved_at = WAITS
