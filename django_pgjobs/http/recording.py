"""Writes the statistics of what workers over HTTP ran and this process has heard of.

A thread of the web process, from the first report on, writes once a minute, and at the end of the
process what is left. One that is killed loses a minute of statistics, and no job.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from django_pgjobs.http.pool import borrowed
from django_pgjobs.http.problems import Problem
from django_pgjobs.worker.running.tally import SPREAD_SECONDS, Tally, ask_clock
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# How long the end of the process waits for a statement of the thread.
END_SECONDS = 3.0


class Recording:
    """A thread that is there once something was counted."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # Set while the thread uses no connection.
        self._is_asleep = threading.Event()

    def begin(self) -> None:
        """See that what is counted is written."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="pgjobs-http-recorder", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._guarded_clock()
            self._is_asleep.set()
            time.sleep(self._tally.next_close() + random.uniform(0, SPREAD_SECONDS))
            self._is_asleep.clear()
            self.write()
            with self._lock:
                if self._tally.is_empty:
                    # The next that is counted begins another one: none asks the time for nobody.
                    self._thread = None
                    self._is_asleep.set()
                    return

    def end(self) -> None:
        """Write what is left; for the end of the process."""
        if self._thread is not None:
            self._is_asleep.wait(END_SECONDS)
        self.write(is_last=True)

    def _guarded_clock(self) -> None:
        with _logged("statistics go by this machine's clock"):
            with borrowed() as connection, connection.cursor() as cursor:
                ask_clock(self._tally, cursor)

    def write(self, *, is_last: bool = False) -> None:
        """Write the minutes that are over; all of them if the process ends."""
        if self._tally.is_empty:
            return
        with _logged("statistics are late"), borrowed() as connection:
            self._tally.write(connection, is_last=is_last)


@contextmanager
def _logged(trouble: str) -> Iterator[None]:
    """Log what goes wrong and go on: without its thread a process would write nothing any more."""
    try:
        yield
    except (psycopg.Error, Problem) as error:
        logger.warning("%s: %s", trouble, str(error).strip())
    except Exception:
        logger.exception("%s", trouble)
