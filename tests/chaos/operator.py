"""What people do to jobs meanwhile: cancel, requeue, reschedule, pause, change limits."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from typing import Any

from django.db import connection, transaction

from django_pgjobs import JobError, cancel, pause, requeue, reschedule, resume
from django_pgjobs.models import Batch, ConcurrencyLimit, QueueSettings, RateLimit
from tests.chaos import tasks, times
from tests.chaos.actions import OUTAGE
from tests.chaos.journal import STOPPED, Journal

LINGERING = (tasks.linger.module_path, tasks.linger_async.module_path)
# No window of the period may hold more; nobody changes it during a run.
RATE_COUNT, RATE_PERIOD, RATE_BURST = 10, 2.0, 3
PAUSES: list[dict[str, Any]] = [
    {"queue": "other"},
    {"queue": "narrow"},
    {"task": tasks.work_async},
    {"key": "order:a"},
    {"key": "wide:*"},
]


def set_up_limits() -> None:
    """Make the limits that the checks know."""
    RateLimit.objects.create(name="chaos", count=RATE_COUNT, period=RATE_PERIOD, burst=RATE_BURST)
    QueueSettings.objects.create(queue_name="narrow", max_running=2)
    ConcurrencyLimit.objects.create(pattern="wide:a", max_running=2)


class Operator:
    """One thread that changes what others have enqueued."""

    def __init__(self, seed: str, journal: Journal) -> None:
        self.random = random.Random(seed)
        self.journal = journal

    def run(self, is_over: threading.Event) -> None:
        """Change something now and then until it is over."""
        actions = [self.cancel_lingering] * 4 + [
            *(self.cancel_any, self.cancel_any, self.requeue_any, self.requeue_any),
            *(self.reschedule_any, self.pause, self.resume, self.resume, self.change_limits),
            *(self.cancel_tree, self.retry_tree, self.retry_tree, self.touch_schedule),
        ]
        while not is_over.wait(self.random.uniform(0.1, 0.6)):
            try:
                self.random.choice(actions)()
            except JobError:
                pass  # locked by somebody else, or a twin has its key
            except OUTAGE:
                connection.close()
        connection.close()

    def finish(self) -> None:
        """End what would wait for a person."""
        for target in PAUSES:
            resume(**target)
        times.pause_all()
        for batch in Batch.objects.filter(sealed_at=None, follows=None):
            batch.seal()
        for job in self.pick(
            "status IN ('ready', 'running') AND task_path = ANY (%s)"
            " AND cancel_requested_at IS NULL",
            [list(LINGERING)],
            1000,
        ):
            cancel(job)

    def pick(self, condition: str, params: list[Any], count: int = 1) -> list[int]:
        """Return the ids of some jobs."""
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT id FROM pgjobs_job WHERE {condition} ORDER BY random() LIMIT {count}",
                params,
            )
            return [row[0] for row in cursor.fetchall()]

    def cancel_lingering(self) -> None:
        """Cancel jobs that would run for ever."""
        for job in self.pick(
            "status = 'running' AND task_path = ANY (%s) AND cancel_requested_at IS NULL",
            [list(LINGERING)],
            2,
        ):
            cancel(job)

    def cancel_any(self) -> None:
        """Cancel any job."""
        for job in self.pick("status IN ('ready', 'running')", []):
            cancel(job)

    def requeue_any(self) -> None:
        """Give a finished job another turn, unless it kills workers."""
        for job in self.pick(
            "status IN ('successful', 'failed', 'cancelled') AND task_path <> %s",
            [tasks.die.module_path],
        ):
            requeue(job)

    def pick_tree(self) -> Batch | None:
        """Return some workflow."""
        return Batch.objects.filter(parent=None).order_by("?").first()

    def cancel_tree(self) -> None:
        """Cancel a workflow."""
        if batch := self.pick_tree():
            self.journal.write(STOPPED, ids=[batch.pk])
            batch.cancel()

    def retry_tree(self) -> None:
        """Run what failed in a workflow again, sometimes what was cancelled too."""
        if batch := self.pick_tree():
            batch.retry(cancelled=self.random.random() < 0.5)

    def touch_schedule(self) -> None:
        """Pause a schedule, let it go on, skip what is next, or run it now."""
        what = self.random.choice(("pause", "resume", "resume", "skip", "run"))
        times.touch(what, self.random.choice(times.TOUCHED))

    def reschedule_any(self) -> None:
        """Move a waiting job to now or to a moment later."""
        moment = self.random.choice((None, timedelta(seconds=self.random.uniform(0, 5))))
        for job in self.pick("status = 'ready'", []):
            reschedule(job, moment)

    def pause(self) -> None:
        """Pause something for some seconds at most."""
        pause(**self.random.choice(PAUSES), until=timedelta(seconds=self.random.uniform(1, 15)))

    def resume(self) -> None:
        """Resume something."""
        resume(**self.random.choice(PAUSES))

    def change_limits(self) -> None:
        """Let more or fewer run at a time."""
        most = self.random.randint(1, 4)
        with transaction.atomic():
            ConcurrencyLimit.objects.filter(pattern="wide:a").update(max_running=most)
            QueueSettings.objects.filter(queue_name="narrow").update(max_running=most)
