"""The scheduler in a whole worker: what is due runs, and who looks after it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_pgjobs import schedule
from django_pgjobs.models import Job, Occurrence, Schedule, Worker
from django_pgjobs.worker.process.scheduler import Scheduler
from django_pgjobs.worker.state import WorkerState
from tests.factories import make_worker
from tests.helpers import end_session, wait_until
from tests.models import Effect
from tests.schedules import tasks
from tests.schedules.support import NOTE_TIME, declaring_anew
from tests.worker.support import ThreadedWorker, make_options
from tests.worker.tasks import backend_pid

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def only_these() -> Iterator[None]:
    with declaring_anew():
        yield


@pytest.fixture
def worker() -> Iterator[ThreadedWorker]:
    """A worker that takes part in schedules; the test starts it."""
    made = ThreadedWorker(schedules=True)
    yield made
    if made.is_running:
        made.close()


@pytest.mark.slow
def test_a_schedule_of_the_code_runs(worker: ThreadedWorker) -> None:
    schedule(tasks.note_time, every=timedelta(seconds=1), args=["x"])
    worker.start()
    wait_until(lambda: Effect.objects.count() >= 2)
    worker.close()
    times = [job.scheduled_for for job in Job.objects.filter(schedule=NOTE_TIME).order_by("id")]
    assert times[1] - times[0] == timedelta(seconds=1)
    assert Worker.objects.get().schedule_names == [NOTE_TIME]
    assert Occurrence.objects.filter(outcome="enqueued").count() == len(times)


def test_a_worker_without_schedules_writes_and_enqueues_nothing() -> None:
    schedule(tasks.note_time, every=timedelta(seconds=1))
    worker = ThreadedWorker()
    worker.start()
    tasks.note_time.enqueue()
    wait_until(lambda: Effect.objects.exists())
    worker.close()
    assert not Schedule.objects.exists()


@pytest.mark.slow
def test_another_one_takes_over(worker: ThreadedWorker) -> None:
    schedule(tasks.note_time, every=timedelta(seconds=1))
    other = ThreadedWorker(schedules=True, name="test:2")
    worker.start()
    other.start()
    wait_until(lambda: Effect.objects.exists())
    worker.close()
    count = Job.objects.count()
    wait_until(lambda: Job.objects.count() > count)
    other.close()


@pytest.mark.slow
def test_what_nobody_declares_any_more_is_retired(worker: ThreadedWorker) -> None:
    schedule(tasks.note_time, every=timedelta(seconds=1))
    for name in ("old", "elsewhere"):
        Schedule.objects.create(
            name=name, task_path=NOTE_TIME, cron="@yearly", declared={"cron": "@yearly"}
        )
    Schedule.objects.create(name="of a person", task_path=NOTE_TIME, cron="@yearly")
    make_worker("test:elsewhere", schedule_names=["elsewhere"])
    worker.runner.scheduler._undeclared_at = 0.0
    worker.start()
    wait_until(lambda: worker.runner.scheduler._undeclared == {"old"})
    # It is looked at once a minute; here at once.
    worker.runner.scheduler._undeclared_at = 0.0
    wait_until(lambda: Schedule.objects.filter(retired_at__isnull=False).exists())
    assert [row.name for row in Schedule.objects.exclude(retired_at=None)] == ["old"]


def test_a_worker_that_only_follows_retires_what_nobody_declares() -> None:
    """It would enqueue what is due, too."""
    Schedule.objects.create(
        name="old", task_path=NOTE_TIME, cron="@yearly", declared={"cron": "@yearly"}
    )
    make_worker()
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    for _ in range(2):
        scheduler._undeclared_at = 0.0
        scheduler._retire()
    assert not scheduler._is_active
    assert Schedule.objects.filter(retired_at__isnull=False).exists()


def test_a_worker_that_entered_anew_brings_back_what_others_retired() -> None:
    """It stood still, so its lease was over; another project's worker saw nobody declare them."""
    schedule(tasks.note_time, cron="@yearly")
    state = WorkerState(make_options(), "test:1", worker_id=1)
    scheduler = Scheduler(state, on_crash=print)
    scheduler._take_turn()
    Schedule.objects.update(retired_at=timezone.now())
    scheduler._take_turn()
    assert Schedule.objects.filter(retired_at__isnull=False).exists()
    state.worker_id = 2
    scheduler._take_turn()
    assert not Schedule.objects.filter(retired_at__isnull=False).exists()


def test_a_look_after_the_server_has_ended_its_session_needs_no_second_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Roles may end idle sessions; a failed look would make what is due late."""
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    scheduler._take_turn()
    before = backend_pid()
    end_session(before)
    scheduler._take_turn()
    assert backend_pid() != before
    assert not caplog.messages


@pytest.mark.slow
def test_a_task_that_is_not_here_is_left_to_others(worker: ThreadedWorker) -> None:
    Schedule.objects.create(name="gone", task_path="tests.schedules.tasks.gone", every=1.0)
    schedule(tasks.note_time, every=timedelta(seconds=1))
    worker.start()
    wait_until(lambda: Effect.objects.count() >= 2)
    gone = Schedule.objects.get(name="gone")
    assert gone.error == ""
    assert not Job.objects.exclude(schedule=NOTE_TIME).exists()


@pytest.mark.slow
def test_it_goes_on_after_the_connection_was_lost(worker: ThreadedWorker) -> None:
    schedule(tasks.note_time, every=timedelta(seconds=1))
    worker.start()
    wait_until(lambda: Effect.objects.exists())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
            " current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        assert cursor.fetchall()
    now = timezone.now()
    wait_until(lambda: Job.objects.filter(enqueued_at__gt=now).exists())
