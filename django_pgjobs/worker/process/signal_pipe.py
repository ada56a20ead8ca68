"""Signals: a handler only leaves a byte in a pipe, and the main thread reads it.

Nothing is raised inside a handler, because it would be raised in the middle of whatever the
main thread does; the interpreter's own wake-up descriptor writes the signal's number.

What a task forks is a process of its own: a signal to it must end it, and not the worker, which
would read of it in the pipe they share. So it gets back the handlers from before.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from django_pgjobs.worker.stillness import WAITS

STANDARD_ERROR = 2
# What a pipe takes at once, if it takes anything.
MOST_SAID = 4096

# Wakes the main loop; no signal has this number.
WAKE = 0
HANDLED = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]
# These do not ask for an end, but would end a process that has no handler for them yet.
HELD = {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}

# The installed pipes; signals go to the last one.
_installed: list[SignalPipe] = []
_forking = threading.local()


class SignalPipe:
    """Where the numbers of received signals are read from; *extra* are handled as well."""

    def __init__(self, extra: tuple[int, ...] = ()) -> None:
        self._numbers = [*HANDLED, *extra]
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._previous: dict[int, Any] = {}
        # When the thread that waits for signals last had any, or had waited.
        self.moved_at = WAITS

    @contextlib.contextmanager
    def installed(self) -> Iterator[SignalPipe]:
        """Handle the signals while the block runs; in the main thread only."""
        # The pipe comes first and goes last: a signal that is ignored and leaves no byte is lost.
        previous_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, _ignore) for number in self._numbers}
        _installed.append(self)
        held = signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        try:
            yield self
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            _installed.remove(self)
            self._restore()
            signal.set_wakeup_fd(previous_wakeup)

    def leave_to_parent(self) -> None:
        """Handle no signal any more, in a process that was forked."""
        signal.set_wakeup_fd(-1)
        self._restore()
        os.close(self._reader)
        os.close(self._writer)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def wake(self) -> None:
        """Let `wait` return; safe from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, bytes([WAKE]))

    def wait(self, timeout: float | None) -> list[int]:
        """Return the numbers of the signals that came, waiting up to *timeout* seconds."""
        self.moved_at = WAITS
        ready, _, _ = select.select([self._reader], [], [], timeout)
        self.moved_at = time.monotonic()
        if not ready:
            return []
        return [number for number in os.read(self._reader, 512) if number != WAKE]


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing here: the number is in the pipe by now."""


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Let signals that would end a process that is starting wait until a pipe is installed.

    What is started in the block, new interpreters too, inherits that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_within(seconds: float, code: int) -> None:
    """Let the interpreter end in good order, within so many seconds.

    It waits for every thread and process that a task has left behind.
    """

    def end() -> None:
        time.sleep(seconds)
        say_past_log("stop    what a task has started does not end; the process does\n")
        os._exit(code)

    with contextlib.suppress(RuntimeError):  # no thread is to be had
        threading.Thread(target=end, name="pgjobs-end", daemon=True).start()


def say_past_log(text: str) -> None:
    """Write to standard error without waiting for it, and without a lock of logging."""
    write_at_once(STANDARD_ERROR, text.encode(errors="replace")[:MOST_SAID])


def write_at_once(descriptor: int, data: bytes) -> None:
    """Write; give up if nobody reads soon enough."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, data)


def _before_fork() -> None:
    # A signal that reaches the child before it has its handlers waits until then.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)


def _after_fork_in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_fork_in_child() -> None:
    while _installed:
        _installed.pop().leave_to_parent()
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
