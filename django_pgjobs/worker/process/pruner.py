"""The pruner: deletes what is past its retention, finished jobs above all, a page at a time.

Waiting jobs that have expired are ended first; those that a worker claims it ends itself.

Finished jobs go within a tenth of their retention after its end, and within a minute; everything
else is looked at once a minute, states of rate limits once an hour. Runs in the leader, and at the
end of a drain; two pruners pass over each other's rows.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import psycopg

from django_pgjobs.conf import get_conf
from django_pgjobs.queries import dependencies, expiry, jobs, rate_limits, schedules, workers
from django_pgjobs.queries.batch_care import TreeRetention
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.status import JobStatus
from django_pgjobs.values.words import counted
from django_pgjobs.worker.process.batch_care import BatchCare
from django_pgjobs.worker.process.horizon import Horizon
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.job_log import log_expiry
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import Options
from django_pgjobs.worker.turns.careful import STEP, in_pages
from django_pgjobs.worker.turns.refusals import LoggedJobs

logger = get_logger(__name__)

PAGE = 2_000
# Between two passes; each is a few index probes when there is nothing to delete.
PASS_SECONDS = 60.0
# Of jobs, if one retention is short: this part of it, and not less than so many seconds.
PART_OF_RETENTION, LEAST_PASS_SECONDS = 0.1, 0.1
# The connection stays open if the next pass comes sooner than so many seconds.
IDLE_SECONDS = 10.0
# Between two full pages, so that pruning never takes the whole disk.
PAGE_PAUSE_SECONDS = 0.05
WORKER_RETENTION_SECONDS = 86400.0
STATE_RETENTION_SECONDS = 86400.0
# An occurrence without its row could be enqueued again.
LEAST_KEPT_SECONDS = 86400.0
# States of rate limits have no index by age, which would cost every token taken.
STATE_PASS_SECONDS = 3600.0


class Pruning:
    """Deletes what is older than its retention, page by page, and counts it."""

    def __init__(
        self,
        connection: OwnConnection,
        retentions: Mapping[JobStatus, float | None],
        *,
        notice: float = 0.0,
        worker: str = "-",
        wait: Callable[[float], None] = time.sleep,
        is_stopped: Callable[[], bool] = lambda: False,
        code_of_project: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._connection = connection
        self._retentions = retentions
        # The worker's name, for the log.
        self._worker = worker
        self._wait = wait
        self._is_stopped = is_stopped
        # Jobs that the server refused to delete.
        self._told = LoggedJobs()
        self.refused: set[int] = set()
        self._horizons: defaultdict[JobStatus, Horizon] = defaultdict(Horizon)
        # Of jobs by status, of everything else by what it is.
        self.deleted: Counter[str] = Counter()
        kept = kept_trees(retentions, notice)
        self._batches = BatchCare(
            connection,
            kept,
            self.deleted,
            is_stopped=is_stopped,
            code_of_project=code_of_project,
        )

    @property
    def job_steps(self) -> list[Callable[[], None]]:
        """Those that end or delete jobs."""
        return [self._expire_jobs, *self._deletions]

    @property
    def _deletions(self) -> list[Callable[[], None]]:
        return [
            partial(self._prune_jobs, status=status, retention=retention)
            for status, retention in self._retentions.items()
            if retention is not None
        ]

    @property
    def steps(self) -> list[Callable[[], None]]:
        """All of them, except `prune_rate_states`.

        Jobs that wait for ended ones are released first, then the ended ones are deleted.
        """
        return [
            self._prune_workers,
            self._sweep_dependencies,
            self._batches.recount,
            *self.job_steps,
            self._batches.tell,
            self._batches.prune,
            self._prune_occurrences,
        ]

    @property
    def steps_by_hand(self) -> list[Callable[[], None]]:
        """All steps that delete; a prune by hand ends no waiting jobs.

        The sweep releases jobs that wait for ended ones, so that these may be deleted.
        """
        return [
            self._prune_workers,
            self._sweep_dependencies,
            *self._deletions,
            self._batches.tell,
            self._batches.prune,
            self._prune_occurrences,
            self.prune_rate_states,
        ]

    # Each statement takes a cursor of its own, and with it a deadline of its own.

    def _prune_workers(self) -> None:
        with self._connection.cursor() as cursor:
            count = workers.prune_workers(cursor, retention=WORKER_RETENTION_SECONDS)
        self.deleted["workers"] += count

    def _expire_jobs(self) -> None:
        """End waiting jobs that have expired, because no worker takes them or may take them."""

        def expire(size: int, passed_over: list[int]) -> list[expiry.Expired]:
            with self._connection.cursor() as cursor:
                return expiry.expire_jobs(cursor, max_jobs=size, passed_over=passed_over)

        def find(passed_over: list[int]) -> list[int]:
            with self._connection.cursor() as cursor:
                return expiry.find_expired_job(cursor, passed_over=passed_over)

        pages = in_pages(
            self._connection, expire, size=PAGE, find=find, on_refused=self._note_refused
        )
        for ended in pages:
            for job in ended:
                log_expiry(job, self._worker)
            if self._is_stopped():
                return

    def _prune_jobs(self, status: JobStatus, retention: float) -> None:
        horizon = self._horizons[status]
        old = jobs.OldJobs(status.value, retention, horizon.begin())
        began = time.monotonic()

        def prune(size: int, passed_over: list[int]) -> range:
            nonlocal began
            began = time.monotonic()
            with self._connection.cursor() as cursor:
                return range(jobs.prune_jobs(cursor, old, max_jobs=size, passed_over=passed_over))

        def find(passed_over: list[int]) -> list[int]:
            with self._connection.cursor() as cursor:
                return jobs.find_old_job(cursor, old, passed_over=passed_over)

        pages = in_pages(
            self._connection, prune, size=PAGE, find=find, on_refused=self._note_refused
        )
        for deleted in pages:
            if deleted:
                logger.info("pruned %s", counted(len(deleted), f"{status.value} job"))
                self.deleted[status.value] += len(deleted)
            if self._is_stopped():
                return
            if len(deleted) == PAGE:
                self._wait(PAGE_PAUSE_SECONDS)
        # The last statement has met nearly all that stays.
        horizon.end(time.monotonic() - began)

    def _note_refused(self, job_id: int, error: psycopg.Error) -> None:
        self.refused.add(job_id)
        level = logging.ERROR if self._told.is_new(job_id) else logging.DEBUG
        logger.log(level, "job=%s cannot be pruned or ended: %s", job_id, str(error).strip())

    def _sweep_dependencies(self) -> None:
        position, page = dependencies.BEGIN, PAGE
        while not self._is_stopped():
            try:
                end = self._sweep_page(position, page)
            except psycopg.Error as error:
                if trouble_of(error) not in (Trouble.LOCKED, Trouble.REFUSED):
                    raise
                if page > 1:
                    page = max(1, page // STEP)
                    continue
                reason = str(error).strip()
                logger.warning("the dependency behind %s is not resolved: %s", position, reason)
                end = self._sweep_page(position, 1, acts=False)
            if end is None:
                return
            position, page = end, min(PAGE, page * STEP)
            self._wait(PAGE_PAUSE_SECONDS)

    def _sweep_page(
        self, position: dependencies.Position, page: int, *, acts: bool = True
    ) -> dependencies.Position | None:
        with self._connection.cursor() as cursor:
            return dependencies.sweep_dependencies(
                cursor, position, max_dependencies=page, acts=acts
            )

    def _prune_occurrences(self) -> None:
        """Delete the rows of occurrences whose jobs are gone, whatever their outcome."""
        kept = [each for each in self._retentions.values() if each is not None]
        if not kept or len(kept) < len(self._retentions):
            return
        deleted = PAGE
        while deleted == PAGE and not self._is_stopped():
            with self._connection.cursor() as cursor:
                deleted = schedules.prune_occurrences(
                    cursor, retention=max(LEAST_KEPT_SECONDS, *kept), max_occurrences=PAGE
                )
            self.deleted["occurrences"] += deleted
            if deleted == PAGE:
                self._wait(PAGE_PAUSE_SECONDS)

    def prune_rate_states(self) -> None:
        """Delete the states of rate limits that nobody needs; this reads all of them."""
        deleted = PAGE
        while deleted == PAGE and not self._is_stopped():
            with self._connection.cursor() as cursor:
                deleted = rate_limits.prune_rate_states(
                    cursor, retention=STATE_RETENTION_SECONDS, max_states=PAGE
                )
            if deleted:
                logger.info("pruned %s of rate limits", counted(deleted, "state"))
                self.deleted["states of rate limits"] += deleted
            if deleted == PAGE:
                self._wait(PAGE_PAUSE_SECONDS)


class Pruner(Role):
    """Prunes now and then."""

    name = "pruner"

    def __init__(
        self,
        options: Options,
        connection: OwnConnection,
        *,
        is_leader: Callable[[], bool],
        on_crash: Callable[[str], None],
        on_pruned: Callable[[], None] = lambda: None,
        worker: str = "-",
    ) -> None:
        super().__init__(on_crash)
        self._connection = connection
        self._is_leader = is_leader
        self._on_pruned = on_pruned
        # When the steps are due that not every pass takes.
        self._rest_due = 0.0
        self._states_due = 0.0
        retentions = retentions_of(options.retention, options.failed_retention)
        self._pause = pause_between(retentions.values())
        self._pruning = Pruning(
            connection,
            retentions,
            notice=get_conf().WORKFLOW_NOTICE_SECONDS,
            worker=worker,
            wait=self.wait,
            is_stopped=lambda: self.stop_requested,
            code_of_project=self.code_of_project,
        )
        # Was a pass asked for, and when did it end?
        self._is_asked = False
        self.pruned_at = math.inf

    def ask(self) -> None:
        """Ask for a whole pass now, even if this is not the leader; safe from any thread.

        `pruned_at` tells of its end, and *on_pruned* is called then.
        """
        if not self._is_asked:
            self._is_asked = True
            self.wake()

    @property
    def _is_awaited(self) -> bool:
        return self._is_asked and self.pruned_at == math.inf

    def run(self) -> None:
        self.wait(random.uniform(1, 5))
        while not self.stop_requested:
            is_leader, is_awaited = self._is_leader(), self._is_awaited
            if is_leader or is_awaited:
                self._connection.close_if_dead()
                self._prune(does_all=is_awaited)
            if is_awaited:
                self.pruned_at = time.monotonic()
                self._on_pruned()
            if not is_leader or self._pause > IDLE_SECONDS:
                self._connection.close()
            # The wake-up may have ended a pause between two pages.
            if not self.stop_requested and not self._is_awaited:
                self.wait(self._pause)
        self._connection.close()

    def _prune(self, *, does_all: bool) -> None:
        began = time.monotonic()
        does_all = does_all or began >= self._rest_due
        steps = self._pruning.job_steps
        if does_all:
            steps = [*self._pruning.steps, self._prune_rate_states]
        for step in steps:
            try:
                step()
            except psycopg.Error as error:
                logger.warning("pruning failed: %s", str(error).strip())
                if not trouble_of(error).spares_rest:
                    return
        if does_all:
            self._rest_due = began + PASS_SECONDS - self._pause

    def _prune_rate_states(self) -> None:
        if time.monotonic() >= self._states_due:
            self._pruning.prune_rate_states()
            self._states_due = time.monotonic() + STATE_PASS_SECONDS


def retentions_of(
    retention: float | None, failed_retention: float | None
) -> dict[JobStatus, float | None]:
    """Return how many seconds jobs stay by how they ended, None for ever."""
    return {
        JobStatus.SUCCESSFUL: retention,
        JobStatus.CANCELLED: retention,
        JobStatus.FAILED: failed_retention,
    }


def kept_trees(retentions: Mapping[JobStatus, float | None], notice: float) -> TreeRetention:
    """Return how long workflows are kept: as long as jobs that ended like them."""
    return TreeRetention(
        retentions.get(JobStatus.SUCCESSFUL), retentions.get(JobStatus.FAILED), notice
    )


def pause_between(retentions: Iterable[float | None]) -> float:
    """Return how many seconds to wait between two passes, for the shortest retention."""
    shortest = min((each for each in retentions if each is not None), default=math.inf)
    return min(PASS_SECONDS, max(LEAST_PASS_SECONDS, shortest * PART_OF_RETENTION))
