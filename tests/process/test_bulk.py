"""A large bulk change, done by real workers of which one is killed on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from psycopg import sql

from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import create_change
from django_pgjobs.bulk.job import enqueue_change
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.control.pauses import pause
from django_pgjobs.models import BulkChange, QueueSettings
from tests.factories import count_jobs, get_job, make_jobs
from tests.helpers import WorkerProcess, wait_until
from tests.process.support import fetch_rows, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
SHORT_LEASE = ("--lease-seconds", "1")
JOBS = 12_000


def make_change(verb: str) -> BulkChange:
    """Store a change of 12,000 failed jobs and the job that does it."""
    user = User.objects.create_superuser("boss")
    end = sql.SQL("now() - random() * interval '1 hour'")
    make_jobs(JOBS, "nowhere.task", status="failed", finished_at=end, queue_name="nowhere")
    selection = Selection({"status": "failed"}).pinned()
    change = create_change(ACTIONS[verb], selection, {}, user=user)
    enqueue_change(change)
    return change


@pytest.mark.parametrize("queue", ["default", "billing"])
def test_a_change_does_not_wait_for_the_backlog_that_it_is_to_remove(
    start: Start, queue: str
) -> None:
    """The queue is paused, limited, boosted; and the worker serves no other one."""
    make_jobs(300, "tests.tasks.add", args=[1, 2], priority=100, queue_name=queue)
    QueueSettings.objects.create(queue_name=queue, boost=199, max_running=1)
    if queue == "default":
        pause(queue=queue)
    user = User.objects.create_superuser("boss")
    selection = Selection({"status": "ready", "queue_name": queue}).pinned()
    change = create_change(ACTIONS["cancel"], selection, {}, user=user)
    enqueue_change(change)
    worker = start("-c", "1", "-q", "billing", "--max-jobs", "1")
    assert worker.wait() == 0
    change.refresh_from_db()
    assert (change.changed, count_jobs(status="ready")) == (300, 0), worker.output()


@pytest.mark.slow
def test_a_killed_worker_repeats_and_forgets_nothing(start: Start) -> None:
    change = make_change("requeue")
    victim = start(*SHORT_LEASE, "-q", "default")
    wait_until(lambda: BulkChange.objects.filter(pk=change.pk, changed__gt=0).exists())
    victim.kill()
    change.refresh_from_db()
    assert 0 < change.changed < JOBS
    survivor = start(*SHORT_LEASE, "-q", "default")
    row = wait_for_status(change.job_id, "successful", timeout=60, worker=survivor)
    change.refresh_from_db()
    assert (change.changed, change.passed_over, change.conflicts) == (JOBS, 0, 0)
    assert (change.total, change.error) == (JOBS, "")
    assert row.result == {"changed": JOBS, "passed_over": 0, "conflicts": 0}
    assert (row.attempts, row.lost_count) == (2, 1)
    # Each job was given back exactly once: its claim rises every time.
    assert fetch_rows(
        "SELECT status, claim, count(*) FROM pgjobs_job WHERE task_path = 'nowhere.task'"
        " GROUP BY status, claim"
    ) == [("ready", 1, JOBS)]


@pytest.mark.slow
def test_two_workers_with_one_change_do_not_do_it_twice(start: Start) -> None:
    change = make_change("requeue")
    path = get_job(change.job_id).task_path
    make_jobs(1, path, args=[change.pk])
    worker = start("-c", "2", "-q", "default")
    wait_until(
        lambda: count_jobs(task_path=path, status="successful") == 2,
        timeout=60,
        message=worker.output,
    )
    change.refresh_from_db()
    assert (change.changed, change.passed_over) == (JOBS, 0)
    assert fetch_rows(
        "SELECT claim, count(*) FROM pgjobs_job WHERE task_path = 'nowhere.task' GROUP BY claim"
    ) == [(1, JOBS)]
