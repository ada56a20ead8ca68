"""Several schedulers at once, and one that dies: each occurrence has one job."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_pgjobs import schedule
from django_pgjobs.compat import task_enqueued
from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.schedules import firing, short
from django_pgjobs.schedules.firing import fire_due
from django_pgjobs.schedules.jobs import Blocked
from django_pgjobs.schedules.syncing import sync_schedules
from django_pgjobs.worker.process.scheduler import (
    FIRST_PASSED_OVER,
    FOLLOW_SECONDS,
    LAST_PASSED_OVER,
    Scheduler,
)
from django_pgjobs.worker.state import WorkerState
from tests.helpers import connect, wait_until
from tests.races.support import DjangoThread
from tests.schedules import tasks
from tests.schedules.support import (
    NOTE_TIME,
    declaring_anew,
    let_be_due,
    make_schedule,
    outcomes,
)
from tests.worker.support import make_options

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


class Halfway:
    """Lets the first turn stop where it has enqueued and not committed, until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.may_go_on = threading.Event(), threading.Event()
        write = firing.queries.write_schedules

        def wait_and_write(*args: Any) -> None:
            if not self.reached.is_set():
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


def test_one_that_stands_still_in_its_turn_is_no_hold_up(monkeypatch: pytest.MonkeyPatch) -> None:
    instant = let_be_due(make_schedule())
    monkeypatch.setattr(short, "STILL_SECONDS", 0.5)
    halfway = Halfway(monkeypatch)
    first = DjangoThread(fire_due)
    assert halfway.reached.wait(30)
    wait_until(lambda: fire_due().taken == 1)
    halfway.may_go_on.set()
    first.join(30)
    assert isinstance(first.error, Blocked)
    assert [job.scheduled_for for job in Job.objects.all()] == [instant]


def test_a_receiver_that_takes_too_long_holds_up_its_schedule_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for row in [make_schedule(name, args=[name]) for name in ("slow", "quick")]:
        let_be_due(row)
    monkeypatch.setattr(short, "STILL_SECONDS", 0.5)

    def be_slow(task_result: Any, **given: Any) -> None:
        if task_result.args == ["slow"]:
            pid = connection.connection.info.backend_pid
            wait_until(lambda: not is_there(pid))

    def is_there(pid: int) -> bool:
        with connect() as observer:
            found = observer.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid])
            return found.fetchone() is not None

    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    task_enqueued.connect(be_slow)
    try:
        DjangoThread(scheduler.fire_all).result()
    finally:
        task_enqueued.disconnect(be_slow)
    assert (outcomes("slow"), outcomes("quick")) == ([], ["enqueued"])
    assert scheduler.put_off.names_at(0.0) == ["slow"]
    fire_due()
    assert outcomes("slow") == ["enqueued"]


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
    assert scheduler.put_off.names_at(0.0) == ["s1"]


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


def test_one_that_is_locked_when_it_is_due_is_looked_at_again_soon() -> None:
    """And again later; the one that was active follows nobody because of it."""
    let_be_due(make_schedule("locked"))
    scheduler = make_active()
    # It wakes for the one that is locked.
    scheduler._expects_at = timezone.now()
    with transaction.atomic():
        Schedule.objects.select_for_update().get(name="locked")
        pauses = DjangoThread(lambda: [scheduler._take_turn() for _ in range(12)]).result()
        assert scheduler._is_active
    assert pauses[0] < 0.1
    rounded = [round(pause, 1) for pause in pauses]
    assert rounded == sorted(rounded)
    assert pauses[-1] == pytest.approx(LAST_PASSED_OVER, abs=0.1)
    scheduler._take_turn()
    assert outcomes("locked") == ["enqueued"]
    assert scheduler._passed_over == FIRST_PASSED_OVER


def test_a_schedule_beside_one_that_is_locked_is_on_time() -> None:
    make_schedule("next year", cron="@yearly")
    let_be_due(make_schedule("locked"))
    scheduler = make_active()
    scheduler._passed_over = LAST_PASSED_OVER
    with transaction.atomic():
        Schedule.objects.select_for_update().get(name="locked")
        turn = DjangoThread(fire_due).result()
    assert turn.is_passed_over
    assert turn.wait is not None
    assert turn.wait > 0
    assert scheduler._pause(turn) == LAST_PASSED_OVER
    turn.wait = 0.5
    # Less what has passed since the answer.
    assert 0 < scheduler._pause(turn) <= 0.51


def test_a_follower_looks_again_after_one_that_is_locked() -> None:
    row = make_schedule()
    let_be_due(row, timedelta(seconds=5))
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    scheduler._may_be_alone = False
    with transaction.atomic():
        Schedule.objects.select_for_update().get()
        began = time.monotonic()
        pause = DjangoThread(scheduler._take_turn).result()
        took = time.monotonic() - began
    # Less what has passed since it was chosen.
    assert FOLLOW_SECONDS[0] - took <= pause <= FOLLOW_SECONDS[1] + 0.1
    scheduler._take_turn()
    # In the first seconds of an hour the one before is due, too, and missed.
    assert outcomes()[-1] == "enqueued"


def test_rows_of_tasks_that_are_not_here_are_not_even_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of them hold up nobody, and another release has its own at once."""
    row = make_schedule()
    let_be_due(row)
    foreign = [
        Schedule(name=f"foreign {number}", task_path="another.task", every=3600.0)
        for number in range(firing.MAX_SCHEDULES + 1)
    ]
    Schedule.objects.bulk_create(foreign)
    halfway = Halfway(monkeypatch)
    scheduler = make_active()
    ours = DjangoThread(scheduler._take_turn)
    assert halfway.reached.wait(30)
    with transaction.atomic():
        free = Schedule.objects.filter(task_path="another.task")
        assert len(free.select_for_update(skip_locked=True)) == len(foreign)
    halfway.may_go_on.set()
    # What waits for another release is no reason to look again.
    assert ours.result() > 1.0
    assert outcomes() == ["enqueued"]
    assert not scheduler.put_off.names_at(0.0)


def test_a_row_of_the_code_that_is_locked_holds_up_no_other() -> None:
    with declaring_anew():
        for name in ("locked", "free"):
            schedule(tasks.note_time, name=name, every=timedelta(seconds=1))
        sync_schedules()
        fire_due()
        Schedule.objects.update(retired_at=timezone.now())
        scheduler = make_active()
        with transaction.atomic():
            Schedule.objects.select_for_update().get(name="locked")
            synced = DjangoThread(sync_schedules).result()
            assert (synced.returned, synced.locked) == (["free"], ["locked"])
            DjangoThread(scheduler._take_turn).result()
        assert not scheduler._is_synced
        scheduler._sync_at = 0.0
        scheduler._take_turn()
        assert scheduler._is_synced
    assert not Schedule.objects.exclude(retired_at=None).exists()


def test_a_locked_row_that_is_as_the_code_says_is_not_waited_for() -> None:
    with declaring_anew():
        schedule(tasks.note_time, name="x", every=timedelta(seconds=1))
        sync_schedules()
        with transaction.atomic():
            Schedule.objects.select_for_update().get()
            assert not any(DjangoThread(sync_schedules).result())


def test_a_row_that_another_one_is_inserting_is_tried_again() -> None:
    with declaring_anew():
        schedule(tasks.note_time, name="x", every=timedelta(seconds=1))
        with transaction.atomic():
            Schedule.objects.create(name="x", task_path=NOTE_TIME, every=5.0)
            assert DjangoThread(sync_schedules).result().locked == ["x"]
        assert sync_schedules().changed == ["x"]


def make_active() -> Scheduler:
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    scheduler._is_active = True
    # It has looked at the others already.
    scheduler._check_at = float("inf")
    return scheduler
