"""The recorder: writes what this process has run, and in the leader what waits and came in.

Once a minute, a little after it is over: one INSERT of each process; the leader also counts what
has not finished, and adds old rows up. What is counted and not yet written is lost with a process
that is killed: a minute of statistics, and no job.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import psycopg

from django_pgjobs.queries import statistics
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.tally import SPREAD_SECONDS, Tally, ask_clock
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# Measuring takes no more of the leader's time than this.
MEASURE_SHARE = 0.01
PRUNE_SECONDS = 3600.0


class Recorder(Role):
    """Writes statistics."""

    name = "recorder"

    def __init__(
        self,
        tally: Tally,
        connection: OwnConnection,
        *,
        retention: float | None,
        is_leader: Callable[[], bool],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._tally = tally
        self._connection = connection
        self._retention = retention
        self._is_leader = is_leader
        self._measure_at = 0.0
        self._prune_at = 0.0

    def run(self) -> None:
        self._attempt(self._set_clock)
        while not self.stop_requested:
            self._take_turn()
            self._connection.close()
            self.wait(self._tally.next_close() + random.uniform(0, SPREAD_SECONDS))
        if not self._tally.is_empty:
            self._attempt(self._write_all)
        self._connection.close()

    def _take_turn(self) -> None:
        if not self._is_leader() and self._tally.is_empty:
            return
        if not (self._attempt(self._set_clock) and self._attempt(self._write)):
            return
        if not self._is_leader():
            return
        now = time.monotonic()
        if now >= self._measure_at:
            self._attempt(self._measure)
            took = time.monotonic() - now
            self._measure_at = now + took / MEASURE_SHARE
        self._attempt(self._roll_up)
        if now >= self._prune_at:
            self._attempt(self._prune)
            self._prune_at = now + PRUNE_SECONDS

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Do a step; log a failure and return False: the step is repeated a minute later."""
        try:
            step()
        except psycopg.Error as error:
            logger.warning("statistics are late: %s", str(error).strip())
            self._connection.close_if_broken()
            return False
        return True

    def _set_clock(self) -> None:
        with self._connection.cursor() as cursor:
            ask_clock(self._tally, cursor)

    def _write(self) -> None:
        self._tally.write(self._connection)

    def _write_all(self) -> None:
        self._tally.write(self._connection, is_last=True)

    def _measure(self) -> None:
        with self._connection.cursor() as cursor:
            statistics.measure_queues(cursor)
            statistics.count_enqueued(cursor)

    def _roll_up(self) -> None:
        for roll_up in (statistics.roll_up, statistics.roll_up_sums):
            for step in statistics.STEPS:
                self._in_pages(partial(roll_up, step=step))

    def _prune(self) -> None:
        self._in_pages(partial(statistics.prune_statistics, retention=self._retention))

    def _in_pages(self, take: Callable[[Cursor], int]) -> None:
        count = statistics.PAGE
        while count >= statistics.PAGE and not self.stop_requested:
            with self._connection.cursor() as cursor:
                count = take(cursor)
