"""The pruner: deletes finished jobs when their retention is over, a page at a time.

Runs in the leader only, which saves work and is not needed for safety: two pruners pass over
each other's rows.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import psycopg

from django_pgjobs.queries import jobs, workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.status import JobStatus
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.state import Options

logger = logging.getLogger(__name__)

PAGE = 2_000
# Between two passes; each is a few index probes when there is nothing to delete.
PASS_SECONDS = 60.0
# Between two full pages, so that pruning never takes the whole disk.
PAGE_PAUSE_SECONDS = 0.05
WORKER_RETENTION_SECONDS = 86400.0


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
            self.wait(PASS_SECONDS)

    def _prune(self) -> None:
        with self._connection.cursor() as cursor:
            workers.prune_workers(cursor, retention=WORKER_RETENTION_SECONDS)
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
