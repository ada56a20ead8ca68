"""A child's end of the socket to its supervisor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from django_pgjobs.worker.process.overseer import Overseer
from django_pgjobs.worker.process.signal_pipe import write_at_once

READY = b"r"
ALIVE = b"."


class Parent(Overseer):
    """The supervisor, as a child sees it.

    The socket, *channel*, is standard input, but it is kept under a number of its own as well,
    because a task may close or replace that.
    """

    def __init__(self, channel: int) -> None:
        self._channel = os.dup(channel)

    def tell_ready(self) -> None:
        """Say that this child takes jobs."""
        write_at_once(self._channel, READY)

    def tell_alive(self) -> None:
        """Give a sign of life."""
        write_at_once(self._channel, ALIVE)

    def end_with(self, stop: Callable[[str], None]) -> None:
        """Call *stop* when the supervisor's end closes."""

        def wait() -> None:
            # A reset: the supervisor died before it read what this child had said.
            with suppress(ConnectionResetError):
                while os.read(self._channel, 1024):
                    pass
            stop("the supervisor is gone")

        threading.Thread(target=wait, name="pgjobs-parent", daemon=True).start()
