"""Cuts the connections of a web process whose answers do not come, as a worker's watchdog does.

A server that is frozen says nothing, and its machine goes on to acknowledge what is sent: without
this a request would hold its thread and its connection until the end of the process, and for ever.
"""

from __future__ import annotations

import os
import threading
import time
from weakref import WeakSet

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

LOOK_SECONDS = 5.0


class Deadlines:
    """The connections that are watched, and the thread that looks at them."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Watch none, as a process that was forked."""
        self._lock = threading.Lock()
        self._watched: WeakSet[OwnConnection] = WeakSet()
        self._thread: threading.Thread | None = None

    def watch(self, connection: OwnConnection) -> OwnConnection:
        """Cut this connection whenever an answer is overdue; return it."""
        with self._lock:
            self._watched.add(connection)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="pgjobs-http-deadlines", daemon=True
                )
                self._thread.start()
        return connection

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                watched = list(self._watched)
            for connection in watched:
                if connection.is_overdue():
                    connection.cut()
                    logger.error("connection of role %s does not answer; cut", connection.role)
            # Not to be kept while this sleeps.
            watched.clear()


deadlines = Deadlines()
os.register_at_fork(after_in_child=deadlines.begin_anew)
