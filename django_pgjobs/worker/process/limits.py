"""The limits of a process: how long it lives, and how much memory it may use."""

from __future__ import annotations

import resource
import sys
import time

from django_pgjobs.worker.state import Options

# How often the memory is looked at.
MEMORY_LOOK_SECONDS = 1.0


class ProcessLimits:
    """Knows when this process has lived long enough."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began_at = time.monotonic()

    def lived(self) -> float:
        """Return how many seconds the process has worked."""
        return time.monotonic() - self._began_at

    def seconds_to_look(self) -> float:
        """Return when to look at the latest."""
        pause = self._options.lease / 6
        if self._options.max_memory_mib is not None:
            pause = min(pause, MEMORY_LOOK_SECONDS)
        if self._options.max_time is not None:
            pause = max(0.0, min(pause, self._options.max_time - self.lived()))
        return pause

    def is_time_over(self) -> bool:
        """Has the process lived as long as it may?"""
        return self._options.max_time is not None and self.lived() >= self._options.max_time

    def excessive_memory(self) -> int | None:
        """Return the memory used at most, in MiB, if that is more than allowed."""
        allowed = self._options.max_memory_mib
        if allowed is None:
            return None
        # Kilobytes, but bytes on macOS.
        unit = 1024 * 1024 if sys.platform == "darwin" else 1024
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
        return used if used > allowed else None
