"""Schedules that a clock which was ahead once has planned too late."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from django_pgjobs.models import Schedule
from django_pgjobs.schedules import checking
from django_pgjobs.schedules.checking import check_planned
from django_pgjobs.worker.process.scheduler import Scheduler
from django_pgjobs.worker.state import WorkerState
from tests.schedules.support import HOUR, NOTE_TIME, fire, let_be_due, make_schedule, outcomes
from tests.worker.support import make_options

pytestmark = pytest.mark.django_db
YEAR = timedelta(days=365)


def test_one_that_is_planned_too_late_is_due_at_its_next_time() -> None:
    rows = [make_schedule(name) for name in ("a", "b", "c")]
    planned = rows[0].next_at
    assert planned is not None
    Schedule.objects.filter(name="b").update(next_at=planned + YEAR)
    # What it does not look after: another's, and one that is paused.
    Schedule.objects.filter(name="c").update(next_at=planned + YEAR, paused_at=timezone.now())
    assert check_planned([NOTE_TIME], "") == (["b"], None)
    assert check_planned([NOTE_TIME], "") == ([], None)
    assert check_planned(["another.task"], "") == ([], None)
    assert Schedule.objects.get(name="b").next_at == planned


def test_one_that_is_broken_or_has_ended_stays_as_it_is() -> None:
    row = make_schedule()
    Schedule.objects.update(runs=1, missed="never", next_at=timezone.now() + YEAR)
    assert check_planned([NOTE_TIME], "").moved == []
    row.refresh_from_db()
    assert row.error == ""


def test_what_has_its_row_gets_no_second_job() -> None:
    row = make_schedule()
    instant = let_be_due(row)
    fire(row)
    # The clock is put back to before it.
    Schedule.objects.update(next_at=instant)
    fire(row)
    assert outcomes() == ["enqueued"]


def test_all_are_looked_at_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "PAGE", 2)
    for name in "abcde":
        make_schedule(name)
    Schedule.objects.update(next_at=timezone.now() + YEAR)
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    for _ in range(3):
        scheduler._take_turn()
    assert not Schedule.objects.filter(next_at__gt=timezone.now() + HOUR).exists()
    assert scheduler._check_after is None
    assert scheduler._check_at > time.monotonic() + 3_000


def test_a_clock_that_is_put_back_is_a_reason_to_look() -> None:
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    now = datetime.now(UTC)
    scheduler._check_at = 1e12
    scheduler._note_clock(now, time.monotonic())
    scheduler._note_clock(now + timedelta(seconds=60), time.monotonic())
    assert scheduler._check_at == 1e12
    scheduler._note_clock(now + timedelta(seconds=50), time.monotonic())
    assert scheduler._check_at == 0.0


def test_a_process_that_stood_still_says_nothing_of_the_clock() -> None:
    """It was stopped for a minute after it had asked for the time, or before the answer came."""
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    now = datetime.now(UTC)
    scheduler._check_at = 1e12
    scheduler._note_clock(now, time.monotonic())
    scheduler._note_clock(now, time.monotonic() - 60)
    scheduler._note_clock(now, time.monotonic())
    assert scheduler._check_at == 1e12


def test_one_that_only_follows_looks_as_well() -> None:
    """It woke in vain when the clock was put back; where all are planned too late, nobody acts."""
    row = make_schedule()
    scheduler = Scheduler(WorkerState(make_options(), "test:1"), on_crash=print)
    scheduler._take_turn()
    Schedule.objects.update(next_at=timezone.now() + YEAR)
    scheduler._expects_at = row.next_at - YEAR
    # As when it has noted that; or after an hour.
    scheduler._check_at = 0.0
    scheduler._take_turn()
    assert not scheduler._is_early
    assert Schedule.objects.get().next_at == row.next_at
