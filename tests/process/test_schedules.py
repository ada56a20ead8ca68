"""Schedules in real workers: one is killed, and no occurrence is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models import F
from django.utils import timezone

from django_pgjobs.models import Job, Occurrence, Schedule
from tests.helpers import WorkerProcess, wait_until
from tests.process.support import NEVER, Journal

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
NOTE = "tests.process.tasks.note"
SECOND = timedelta(seconds=1)


def count() -> int:
    """Return how many jobs schedules have enqueued."""
    return Job.objects.exclude(schedule=None).count()


def test_each_second_has_one_job_though_workers_are_killed(start: Start, journal: Journal) -> None:
    for number in range(3):
        Schedule.objects.create(
            name=f"s{number}", task_path=NOTE, args=[journal.folder, f"s{number}"], every=1.0
        )
    workers = [start(), start()]
    for victim in list(workers):
        known = count()
        wait_until(lambda known=known: count() >= known + 6)
        workers.append(start())
        victim.kill()
    known = count()
    wait_until(lambda: count() >= known + 15)
    for worker in workers[2:]:
        worker.stop()
    for number in range(3):
        jobs = Job.objects.filter(schedule=f"s{number}").order_by("scheduled_for")
        times = [job.scheduled_for for job in jobs]
        assert times == [times[0] + index * SECOND for index in range(len(times))]
        assert list(jobs.values_list("id", flat=True)) == list(
            Occurrence.objects.filter(schedule=f"s{number}")
            .order_by("scheduled_for")
            .values_list("job_id", flat=True)
        )


def test_a_worker_that_is_stopped_in_its_turn_keeps_no_schedule_from_others(
    start: Start, journal: Journal
) -> None:
    module = "tests.process.stopping"
    task_path = f"{module}.note_after_stop"
    row = Schedule.objects.create(
        name="x", task_path=task_path, args=[journal.folder], every=1.0, max_runs=1
    )
    stopped = start(modules=(module,))
    wait_until((Path(journal.folder) / "stopped").exists)
    other = start(modules=(module,))
    journal.wait_for("ran")
    other.stop()
    stopped.kill()
    row.refresh_from_db()
    assert count() == Occurrence.objects.filter(outcome="enqueued").count() == 1
    assert row.runs == 1


def test_a_drain_enqueues_what_is_due_first(start: Start, journal: Journal) -> None:
    Schedule.objects.create(name="x", task_path=NOTE, args=[journal.folder, "x"], every=3600.0)
    assert start("--drain", "--poll-interval", NEVER).wait() == 0
    assert not journal.lines()
    Schedule.objects.update(next_at=F("next_at") - timedelta(hours=1))
    assert start("--drain", "--no-schedules", "--poll-interval", NEVER).wait() == 0
    assert not journal.lines()
    assert start("--drain", "--poll-interval", NEVER).wait() == 0
    assert journal.lines() == ["x"]
    row = Schedule.objects.get()
    assert row.next_at is not None
    assert row.next_at > timezone.now()
