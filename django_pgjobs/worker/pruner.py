"""The pruner: deletes what is past its retention, finished jobs above all, a page at a time.

Runs in the leader only, which saves work and is not needed for safety: two pruners pass over
each other's rows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import psycopg

from django_pgjobs.queries import dependencies, jobs, rate_limits, workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.status import JobStatus
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import Options

logger = get_logger(__name__)

PAGE = 2_000
# Between two passes; each is a few index probes when there is nothing to delete.
PASS_SECONDS = 60.0
# Between two full pages, so that pruning never takes the whole disk.
PAGE_PAUSE_SECONDS = 0.05
WORKER_RETENTION_SECONDS = 86400.0
STATE_RETENTION_SECONDS = 86400.0
# States of rate limits have no index by age, which would cost every token taken.
STATE_PASS_SECONDS = 3600.0


class Pruner(Role):
    """Deletes what is older than its retention."""

    name = "pruner"

    def __init__(
        self,
        options: Options,
        connection: OwnConnection,
        *,
        is_leader: Callable[[], bool],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._connection = connection
        self._is_leader = is_leader
        self._states_due = 0.0
        self._retentions = {
            JobStatus.SUCCESSFUL: options.retention,
            JobStatus.CANCELLED: options.retention,
            JobStatus.FAILED: options.failed_retention,
        }

    def run(self) -> None:
        self.wait(random.uniform(1, 5))
        while not self.stop_requested:
            if self._is_leader():
                try:
                    self._prune()
                except psycopg.Error as error:
                    logger.warning("pruning failed: %s", str(error).strip())
                self._connection.close()
            # The wake-up of a stop may have ended a pause between two pages.
            if not self.stop_requested:
                self.wait(PASS_SECONDS)

    def _prune(self) -> None:
        with self._connection.cursor() as cursor:
            workers.prune_workers(cursor, retention=WORKER_RETENTION_SECONDS)
            # Before the jobs go that others may still wait for.
            self._sweep_dependencies(cursor)
            for status, retention in self._retentions.items():
                while retention is not None and not self.stop_requested:
                    deleted = jobs.prune_jobs(
                        cursor, status=status.value, retention=retention, max_jobs=PAGE
                    )
                    if deleted:
                        logger.info("pruned %d %s jobs", deleted, status.value)
                    if deleted < PAGE:
                        break
                    self.wait(PAGE_PAUSE_SECONDS)
            if time.monotonic() >= self._states_due:
                self._prune_rate_states(cursor)
                self._states_due = time.monotonic() + STATE_PASS_SECONDS

    def _sweep_dependencies(self, cursor: Cursor) -> None:
        position: dependencies.Position | None = dependencies.BEGIN
        while position is not None and not self.stop_requested:
            position = dependencies.sweep_dependencies(cursor, position, max_dependencies=PAGE)
            if position is not None:
                self.wait(PAGE_PAUSE_SECONDS)

    def _prune_rate_states(self, cursor: Cursor) -> None:
        deleted = PAGE
        while deleted == PAGE and not self.stop_requested:
            deleted = rate_limits.prune_rate_states(
                cursor, retention=STATE_RETENTION_SECONDS, max_states=PAGE
            )
            if deleted:
                logger.info("pruned %d states of rate limits", deleted)
            if deleted == PAGE:
                self.wait(PAGE_PAUSE_SECONDS)
