"""Several schedulers at once, and one that dies: each occurrence has one job."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.schedules import firing
from django_pgjobs.schedules.firing import fire_due
from django_pgjobs.worker.process.scheduler import Scheduler
from django_pgjobs.worker.state import WorkerState
from tests.helpers import connect, wait_until
from tests.races.support import DjangoThread
from tests.schedules import tasks
from tests.schedules.support import let_be_due, make_schedule, outcomes
from tests.worker.support import make_options

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


class Halfway:
    """Lets a turn stop where it has enqueued and not committed, until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.may_go_on = threading.Event(), threading.Event()
        write = firing.queries.write_schedules

        def wait_and_write(*args: Any) -> None:
            self.reached.set()
            assert self.may_go_on.wait(30)
            write(*args)

        monkeypatch.setattr(firing.queries, "write_schedules", wait_and_write)


def test_a_schedule_that_another_one_has_taken_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = make_schedule()
    let_be_due(row)
    halfway = Halfway(monkeypatch)
    first = DjangoThread(fire_due)
    assert halfway.reached.wait(30)
    assert fire_due().taken == 0
    halfway.may_go_on.set()
    assert first.result().taken == 1
    assert fire_due().taken == 0
    assert outcomes() == ["enqueued"]
    assert Job.objects.count() == 1


def test_one_that_dies_before_its_commit_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_schedule()
    instant = let_be_due(row)
    halfway = Halfway(monkeypatch)
    first = DjangoThread(fire_due)
    assert halfway.reached.wait(30)
    with connect() as observer:
        observer.execute("SELECT pg_terminate_backend(%s)", [first.backend_pid])
    halfway.may_go_on.set()
    first.join(30)
    assert first.error is not None
    assert not Job.objects.exists()
    wait_until(lambda: fire_due().taken == 1)
    assert [job.scheduled_for for job in Job.objects.all()] == [instant]


def test_an_occurrence_that_somebody_is_just_skipping_is_waited_for() -> None:
    row = make_schedule()
    instant = let_be_due(row)
    with transaction.atomic():
        Occurrence.objects.create(schedule=row.name, scheduled_for=instant, outcome="skipped")
        other = DjangoThread(fire_due)
        other.wait_until_executed("pgjobs_occurrence")
    assert other.result().taken == 1
    assert outcomes() == ["skipped"]
    assert not Job.objects.exists()


def test_many_schedulers_enqueue_each_second_of_many_schedules_once() -> None:
    begin = timezone.now().replace(microsecond=0) - timedelta(seconds=50)
    names = [f"s{number}" for number in range(20)]
    for name in names:
        make_schedule(name, every=1.0, missed="all")
    Schedule.objects.update(next_at=begin)
    until = begin + timedelta(seconds=52)
    Schedule.objects.update(ends_at=until)
    # The trigger wants them planned anew; they are due from the begin on.
    Schedule.objects.update(next_at=begin)

    def work() -> int:
        taken = 0
        while Schedule.objects.filter(next_at__isnull=False).exists():
            taken += fire_due().taken
        return taken

    threads = [DjangoThread(work) for _ in range(4)]
    assert sum(thread.result() for thread in threads) >= len(names)
    for name in names:
        jobs = Job.objects.filter(schedule=name).order_by("scheduled_for")
        instants = [begin + timedelta(seconds=number) for number in range(52)]
        assert [job.scheduled_for for job in jobs] == instants
    assert connection.get_autocommit()


def test_what_the_server_refuses_of_one_schedule_stops_no_other() -> None:
    rows = [make_schedule(f"s{number}") for number in range(3)]
    for row in rows:
        let_be_due(row)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'not this one'; END $$;"
            "CREATE TRIGGER refuse BEFORE INSERT ON pgjobs_occurrence FOR EACH ROW"
            " WHEN (NEW.schedule = 's1') EXECUTE FUNCTION refuse()"
        )
    try:
        scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
        scheduler.fire_all()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse CASCADE")
    assert [outcomes(row.name) for row in rows] == [["enqueued"], [], ["enqueued"]]
    assert list(scheduler._excluded) == ["s1"]


def test_a_unique_key_of_an_open_transaction_holds_up_its_schedule_only() -> None:
    first = make_schedule("waits", "tests.schedules.tasks.one_at_a_time")
    second = make_schedule("second")
    for row in (first, second):
        let_be_due(row)
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    with transaction.atomic():
        tasks.one_at_a_time.enqueue()
        DjangoThread(scheduler.fire_all).result()
    assert (outcomes("waits"), outcomes("second")) == ([], ["enqueued"])
    fire_due()
    assert outcomes("waits") == ["joined"]
