"""Two workers work the jobs off; one of them is killed on the way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Count, Q
from django.db.models.functions import Now

from django_pgjobs.models import Job
from example_project.shop.demo.feed import DemoError, Sent
from example_project.shop.demo.progress import Progress
from example_project.shop.demo.workers import Workers
from example_project.shop.mail import SLOW_SECONDS

POLL_SECONDS = 0.2
HUNT_SECONDS = 0.05  # the same while a worker is to be caught in the middle of a job
KILL_SHARE = 0.3  # of the jobs finished before a worker is killed
SETTLE_SECONDS = 0.3  # the server may still be busy with the last words of a killed worker
STALL_SECONDS = 20  # nothing finished for so long: something is wrong


@dataclass(slots=True)
class Drained:
    """What happened while the jobs were worked off."""

    seconds: float = 0.0
    killed_at: datetime | None = None
    killed_pid: int | None = None
    killed_worker: int | None = None  # the id of its row
    orphans: list[int] = field(default_factory=list)  # jobs the killed worker was running


class Drain:
    """One run of the workers over the jobs in *sent*."""

    def __init__(
        self, sent: Sent, workers: Workers, progress: Progress, place_early: Callable[[], None]
    ) -> None:
        self._sent = sent
        self._range = min(sent.jobs), max(sent.jobs)
        self._total = len(sent.jobs)
        self._workers = workers
        self._progress = progress
        self._place_early: Callable[[], None] | None = place_early
        self._outcome = Drained()

    def run(self, *, kill: bool) -> Drained:
        """Wait until every job has finished; raise DemoError if that does not come."""
        started = changed = time.monotonic()
        before = (-1, -1)
        while (now := self._count_unfinished())[0]:
            done = self._total - now[0]
            self._progress.show(done, self._note)
            if now != before:
                before, changed = now, time.monotonic()
            elif time.monotonic() - changed > STALL_SECONDS:
                tail = self._workers.log_tail(self._workers.pids[0])
                raise DemoError(f"no job finished for {STALL_SECONDS} s; {self._note()}{tail}")
            self._workers.check()
            self._place_early_orders()
            hunts = kill and not self._outcome.killed_pid and done >= KILL_SHARE * self._total
            if hunts:
                self._kill_one()
            time.sleep(HUNT_SECONDS if hunts else POLL_SECONDS)
        self._outcome.seconds = time.monotonic() - started
        self._progress.finish(self._total, self._note())
        return self._outcome

    def _count_unfinished(self) -> tuple[int, int]:
        """Return how many of our jobs are unfinished, and how many there are in all.

        The workers may be busy with what an interrupted run has left.
        """
        unfinished = Job.objects.filter(status__in=("ready", "running"))
        ours = Count("pk", filter=Q(id__range=self._range))
        counts = unfinished.aggregate(ours=ours, all=Count("pk"))
        return counts["ours"], counts["all"]

    def _place_early_orders(self) -> None:
        """Place the orders whose webhooks came too early, once each was tried in vain."""
        early = Job.objects.filter(id__in=self._sent.early_jobs)
        if self._place_early and not early.exclude(status="ready", attempts__gt=0).exists():
            self._place_early()
            self._place_early = None

    def _kill_one(self) -> None:
        """Kill a worker that is in the middle of a job; none is: try again next time."""
        # Only jobs that have half of their time left: they must not end before the blow falls.
        newest = Now() - timedelta(seconds=SLOW_SECONDS / 2)
        slow = Job.objects.filter(id__in=self._sent.slow_jobs)
        busy = slow.filter(status="running", last_attempted_at__gt=newest)
        running = Counter(busy.values_list("worker_id", flat=True))
        rows = self._workers.rows()
        victims = [(running[row], row) for row in rows if running[row]]
        if not victims:
            return
        row = max(victims)[1]
        self._workers.kill(rows[row])
        self._outcome.killed_pid, self._outcome.killed_worker = rows[row], row
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            [self._outcome.killed_at] = cursor.fetchone()
        time.sleep(SETTLE_SECONDS)
        orphans = Job.objects.filter(id__range=self._range, status="running", worker_id=row)
        self._outcome.orphans = list(orphans.values_list("id", flat=True))
        replacement = self._workers.start()
        self._progress.say(
            f"  ✕ kill -9 {rows[row]}: that worker held {len(self._outcome.orphans)} jobs. "
            f"Worker {replacement} replaces it."
        )

    def _note(self) -> str:
        jobs = Job.objects.filter(id__range=self._range)
        running = jobs.filter(status="running").count()
        lost = jobs.filter(lost_count__gt=0).count()
        return f"{len(self._workers.pids)} workers, {running} running, {lost} rescued"
