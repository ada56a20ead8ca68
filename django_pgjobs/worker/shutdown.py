"""Signals: a handler only leaves a byte in a pipe, and the main thread reads it.

Nothing is raised inside a handler, because it would be raised in the middle of whatever the
main thread does; the interpreter's own wake-up descriptor writes the signal's number.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType

# Says that some thread wants the main loop to look; no signal has this number.
WAKE = 0
HANDLED = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]


class SignalPipe:
    """Where the numbers of received signals are read from; *extra* are handled as well."""

    def __init__(self, extra: tuple[int, ...] = ()) -> None:
        self._numbers = [*HANDLED, *extra]
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    @contextlib.contextmanager
    def installed(self) -> Iterator[SignalPipe]:
        """Handle the signals while the block runs; in the main thread only."""
        # The pipe comes first and goes last: a signal that is ignored and leaves no byte is lost.
        previous_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        previous = {number: signal.signal(number, _ignore) for number in self._numbers}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_wakeup)

    def wake(self) -> None:
        """Let `wait` return; safe from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, bytes([WAKE]))

    def wait(self, timeout: float | None) -> list[int]:
        """Return the numbers of the signals that came, waiting up to *timeout* seconds."""
        ready, _, _ = select.select([self._reader], [], [], timeout)
        if not ready:
            return []
        return [number for number in os.read(self._reader, 512) if number != WAKE]


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing here: the number is in the pipe by now."""
