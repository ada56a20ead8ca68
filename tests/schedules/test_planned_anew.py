"""Rows that are written while nobody looks: what comes from then on is not lost."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError, connection
from django.utils import timezone

from django_pgjobs.models import Occurrence, Schedule
from django_pgjobs.schedules.control import pause_schedule, resume_schedule
from tests.schedules.support import (
    HOUR,
    MINUTE,
    NOTE_TIME,
    fire,
    jobs_of,
    let_be_due,
    make_schedule,
    outcomes,
)

pytestmark = pytest.mark.django_db


def let_be_written(row: Schedule, ago: timedelta) -> None:
    """Let a row that is to be planned have been written so long ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_schedule SET plan_from = %s WHERE name = %s",
            [timezone.now() - ago, row.name],
        )


def planned_from(row: Schedule) -> datetime | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT plan_from FROM pgjobs_schedule WHERE name = %s", [row.name])
        [(instant,)] = cursor.fetchall()
    found: datetime | None = instant
    return found


def test_a_change_shortly_before_an_occurrence_does_not_lose_it() -> None:
    row = make_schedule(every=10.0)
    Schedule.objects.update(ends_at=timezone.now() + timedelta(days=365))
    # No worker looked for a moment, in which it was due.
    let_be_written(row, timedelta(seconds=10))
    fire(row)
    assert outcomes() == ["enqueued"]
    assert planned_from(row) is None


def test_a_change_of_one_that_is_due_leaves_it_due() -> None:
    row = make_schedule()
    instant = let_be_due(row)
    Schedule.objects.update(except_dates=["2020-12-24"])
    fire(row)
    assert [job.scheduled_for for job in jobs_of()] == [instant]


def test_a_change_in_an_outage_leaves_what_was_missed_to_its_policy() -> None:
    row = make_schedule(missed="latest")
    begin = let_be_due(row, 5 * HOUR)
    Schedule.objects.update(except_dates=["2020-12-24"])
    Schedule.objects.update(except_dates=["2020-12-25"])
    fire(row)
    assert outcomes() == ["missed", "enqueued"]
    assert Occurrence.objects.get(outcome="missed").scheduled_for == begin


def test_a_one_off_that_was_written_in_an_outage_runs_at_its_own_time() -> None:
    starts = timezone.now() - 5 * MINUTE
    row = Schedule.objects.create(
        name="each hour", task_path=NOTE_TIME, every=86400.0, starts_at=starts, max_runs=1
    )
    let_be_written(row, 10 * MINUTE)
    fire(row)
    assert [job.scheduled_for for job in jobs_of()] == [starts]
    assert (row.next_at, row.error) == (None, "")


def test_what_was_due_before_a_row_was_written_is_not_made_up_for() -> None:
    make_schedule(every=60.0, missed="all", starts_at=timezone.now() - 5 * HOUR)
    assert not outcomes()


def test_a_resume_shortly_before_an_occurrence_does_not_lose_it() -> None:
    row = make_schedule(every=10.0)
    let_be_due(row, HOUR)
    pause_schedule(row.name)
    before = timezone.now()
    resume_schedule(row.name)
    moment = planned_from(row)
    assert moment is not None
    assert before <= moment <= timezone.now()
    let_be_written(row, timedelta(seconds=10))
    fire(row)
    assert outcomes() == ["enqueued"]


def test_an_insert_by_sql_is_planned_from_its_moment() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_schedule (name, task_path, every) VALUES ('each hour', %s, 10)",
            [NOTE_TIME],
        )
    row = Schedule.objects.get()
    let_be_written(row, timedelta(seconds=10))
    fire(row)
    assert outcomes() == ["enqueued"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"timezone": "Mars/Olympus"}, {"timezone": "UTC"}),
        ({"overlap": "no"}, {"overlap": "allow"}),
    ],
)
def test_what_was_due_while_it_was_broken_goes_by_its_policy(
    wrong: dict[str, str], right: dict[str, str]
) -> None:
    row = make_schedule(missed="all")
    Schedule.objects.update(**wrong)
    if row.next_at:
        let_be_due(row, 3 * HOUR)
    let_be_written(row, 3 * HOUR)
    fire(row)
    assert row.error.startswith("It is not planned: ")
    Schedule.objects.update(**right)
    fire(row)
    assert row.error == ""
    assert outcomes() == ["enqueued"] * len(outcomes())
    assert 3 <= len(outcomes()) <= 4


def test_one_that_comes_back_with_another_rule_goes_by_its_policy() -> None:
    row = make_schedule(missed="all")
    begin = let_be_due(row, 3 * HOUR)
    Schedule.objects.update(retired_at=timezone.now())
    Schedule.objects.update(retired_at=None, every=1800.0)
    fire(row)
    assert Occurrence.objects.earliest("scheduled_for").scheduled_for == begin
    assert len(outcomes()) >= 6


def test_one_that_is_never_due_by_sql_is_refused() -> None:
    make_schedule()
    with connection.cursor() as cursor, pytest.raises(IntegrityError, match="next_at"):
        cursor.execute("UPDATE pgjobs_schedule SET next_at = 'infinity'")
