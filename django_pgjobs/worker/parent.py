"""A child's end of the socket to its supervisor."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.shutdown import write_at_once

logger = get_logger("django_pgjobs.worker")

READY = b"r"
ALIVE = b"."


class Parent:
    """The supervisor, as a child sees it.

    The socket is standard input, but it is kept under a number of its own as well, because a task
    may close or replace that.
    """

    def __init__(self) -> None:
        self._channel = os.dup(sys.stdin.fileno())

    def tell_ready(self) -> None:
        """Say that this child takes jobs."""
        write_at_once(self._channel, READY)

    def tell_alive(self) -> None:
        """Give a sign of life."""
        write_at_once(self._channel, ALIVE)

    def end_with(self, stop: Callable[[str], None]) -> None:
        """Call *stop* when the supervisor's end closes."""

        def wait() -> None:
            try:
                while os.read(self._channel, 1024):
                    pass
            except OSError:
                logger.warning("the pipe to the supervisor broke")
            stop("the supervisor is gone")

        threading.Thread(target=wait, name="pgjobs-parent", daemon=True).start()
