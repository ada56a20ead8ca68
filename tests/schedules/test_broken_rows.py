"""Rows that nobody can plan, or not everybody: they stop no other, and are not given up."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_pgjobs import task
from django_pgjobs.models import Occurrence, Schedule
from django_pgjobs.occurrences import cron
from django_pgjobs.queries import schedules as queries
from django_pgjobs.queries.schedules import OccurrenceRow
from django_pgjobs.schedules import firing, plans
from django_pgjobs.schedules.control import backfill
from django_pgjobs.schedules.firing import ScheduleTurn, fire_due
from django_pgjobs.worker.process.schedule_log import ScheduleLog
from django_pgjobs.worker.process.scheduler import Scheduler
from django_pgjobs.worker.state import WorkerState
from tests.schedules.support import (
    HOUR,
    NOTE_TIME,
    fire,
    jobs_of,
    let_be_due,
    make_schedule,
    outcomes,
)
from tests.worker.support import make_options

pytestmark = pytest.mark.django_db


def leave(*_: Any) -> str:
    """Give no key but end the process."""
    sys.exit(3)


@task(unique_key=leave)
def exits() -> None:
    """Never be enqueued."""


@task(concurrency_key="k")
def keyed() -> None:
    """Do nothing, as an older release declared it."""


@pytest.mark.parametrize("dates", ["{{2026-01-01},{2026-01-02}}", "{NULL}", "{x}"])
def test_dates_that_are_none_are_an_error_of_their_row(dates: str) -> None:
    broken, whole = make_schedule("broken"), make_schedule("whole")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_schedule SET except_dates = %s WHERE name = 'broken'", [dates]
        )
    let_be_due(whole)
    fire(broken)
    assert broken.error.startswith("It is not planned: ")
    assert outcomes("whole") == ["enqueued"]
    with pytest.raises(ValueError, match=r"dates|isoformat"):
        plans.rule_of(broken)


def test_whatever_planning_raises_is_an_error_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [make_schedule(name) for name in ("broken", "whole")]
    for row in rows:
        let_be_due(row)
    due = plans._due

    def fail(row: Any, *given: Any) -> Any:
        if row.name == "broken":
            raise RecursionError("too deep")
        return due(row, *given)

    monkeypatch.setattr(plans, "_due", fail)
    fire(rows[0])
    assert rows[0].error == "It is not planned: RecursionError: too deep"
    assert outcomes("whole") == ["enqueued"]


@pytest.mark.django_db(transaction=True)
def test_what_a_turn_raises_holds_up_one_schedule_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in [make_schedule(name) for name in ("broken", "whole")]:
        let_be_due(row)
    count = firing._count

    def fail(case: Any, row: Any) -> None:
        if row.schedule == "broken":
            raise KeyError("odd")
        count(case, row)

    monkeypatch.setattr(firing, "_count", fail)
    scheduler = make_scheduler()
    scheduler.fire_all()
    assert scheduler.put_off.names_at(0.0) == ["broken"]
    assert outcomes("whole") == ["enqueued"]


def test_a_key_that_ends_the_process_is_a_failed_enqueue() -> None:
    row, other = make_schedule(task_path=exits.module_path), make_schedule("other", NOTE_TIME)
    twin = make_schedule("twin", task_path=exits.module_path)
    for each in (row, other, twin):
        let_be_due(each)
    fire(row)
    assert outcomes() == outcomes("twin") == ["failed"]
    assert "SystemExit: 3" in row.error
    assert row.next_at is not None
    assert outcomes("other") == ["enqueued"]


def test_a_long_error_is_cut() -> None:
    row = make_schedule()
    Schedule.objects.update(every=None, cron="@daily", timezone="y" * 100_000)
    fire(row)
    assert "left out" in row.error
    assert len(row.error) < 1_200


def make_scheduler() -> Scheduler:
    return Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)


def test_without_the_parser_a_schedule_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_schedule(cron="1 2 3 4 *")
    let_be_due(row, timedelta(seconds=1))
    instant = Schedule.objects.get().next_at
    with monkeypatch.context() as without:
        without.setattr(cron, "CronSim", None)
        cron.cron_of.cache_clear()
        plans._rule.cache_clear()
        turn = fire_due()
    assert "need the package cronsim" in turn.unknown[row.name]
    row.refresh_from_db()
    assert (row.next_at, row.error) == (instant, "")


def test_without_any_time_zones_a_schedule_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = make_schedule(timezone="Mars/Olympus")
    assert "Mars/Olympus" in row.error
    Schedule.objects.update(timezone="Mars/Phobos")
    monkeypatch.setattr("zoneinfo.available_timezones", set)
    assert "Mars/Phobos" in fire_due().unknown[row.name]


def test_a_rule_that_another_worker_has_planned_is_left_to_it_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its release may know a rule, or its image a time zone, that this one does not."""
    row = make_schedule()

    def refuse(*_: Any) -> None:
        raise ValueError("no such zone here")

    monkeypatch.setattr(plans, "_rule", refuse)
    Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=30))
    assert fire_due().unknown == {row.name: "no such zone here"}
    Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=90))
    fire(row)
    assert (row.next_at, row.error) == (None, "It is not planned: no such zone here")


def test_a_policy_that_the_task_of_this_release_cannot_have_is_left_to_others() -> None:
    row = make_schedule()
    Schedule.objects.update(task_path=keyed.module_path, overlap="queue")
    instant = let_be_due(row)
    turn = fire_due()
    assert "the task has a concurrency key" in turn.unknown[row.name]
    # The other release, which may have declared it without a key.
    Schedule.objects.update(task_path=NOTE_TIME)
    fire(row)
    assert [job.scheduled_for for job in jobs_of()] == [instant]


@pytest.mark.parametrize("is_active", [False, True])
def test_what_could_not_be_planned_is_tried_again(
    is_active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one that starts, and now and then by one that is active; it goes on where it was."""
    row = make_schedule()
    instant = let_be_due(row)

    def refuse(*_: Any) -> None:
        raise ValueError("an older release knows no such rule")

    with monkeypatch.context() as older:
        older.setattr(plans, "_due", refuse)
        fire(row)
    assert (row.next_at, row.error != "") == (None, True)
    scheduler = make_scheduler()
    scheduler._is_active = is_active
    scheduler._broken_at = 0.01 if is_active else 0.0
    scheduler._take_turn()
    row.refresh_from_db()
    assert row.error == ""
    assert [job.scheduled_for for job in jobs_of()] == [instant]


def test_one_that_has_ended_with_a_failure_is_not_tried_again() -> None:
    row = make_schedule(args=[1, 2, 3])
    Schedule.objects.update(ends_at=let_be_due(row) + timedelta(seconds=1))
    let_be_due(row)
    fire(row)
    assert (row.next_at, "TypeError" in row.error) == (None, True)
    with connection.cursor() as cursor:
        queries.retry_broken(cursor, [NOTE_TIME])
    row.refresh_from_db()
    assert (row.next_at, "TypeError" in row.error) == (None, True)


def test_a_backfill_makes_up_for_what_failed_and_what_was_missed() -> None:
    row = make_schedule(missed="skip")
    begin = let_be_due(row, 3 * HOUR)
    fire(row)
    assert outcomes()[0] == "missed"
    Occurrence.objects.create(schedule=row.name, scheduled_for=begin + HOUR, outcome="failed")
    Occurrence.objects.create(schedule=row.name, scheduled_for=begin + 2 * HOUR, outcome="skipped")
    assert backfill(row.name, begin, begin + 2 * HOUR) == (2, 0, 1, 0)
    assert outcomes()[:3] == ["enqueued", "enqueued", "skipped"]
    assert [job.scheduled_for for job in jobs_of()][-2:] == [begin, begin + HOUR]


def test_what_fails_again_and_again_does_not_silence_what_breaks_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log = ScheduleLog()
    for number in range(1_100):
        log.note(ScheduleTurn(errors={"fails": f"{number}: no key today"}))
    for _ in range(2):
        log.note(ScheduleTurn(errors={"broken": "It is not planned: x"}))
    assert [each for each in caplog.messages if "broken" in each] == [
        "schedule=broken It is not planned: x"
    ]
    # After a job of it what is wrong is news again.
    done = OccurrenceRow("broken", timezone.now(), "enqueued", job_id=1)
    log.note(ScheduleTurn(occurrences=[done]))
    assert caplog.messages[-1] == (
        f"schedule=broken enqueued for={done.scheduled_for.isoformat()} job=1"
    )
    log.note(ScheduleTurn(errors={"broken": "It is not planned: x"}))
    assert caplog.text.count("schedule=broken It is not planned: x") == 2
