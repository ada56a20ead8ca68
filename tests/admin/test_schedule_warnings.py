"""What the Overview warns of about schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_pgjobs.models import Schedule
from tests.admin.overview_support import numbers, read
from tests.factories import make_job
from tests.schedules.support import NOTE_TIME, let_wait, make_schedule

pytestmark = pytest.mark.django_db

LATE = "Schedule each hour is late: it was due, and no worker has taken it."
FAILED = "The last run of schedule each hour failed."


def warnings() -> list[str]:
    """Return what is said of schedules."""
    return [notice.text for notice in numbers()["warnings"] if "chedule" in notice.text]


def job_of(status: str) -> dict[str, Any]:
    """Return the columns of a schedule whose last job ended so."""
    job_id = make_job(status=status, finished_at=timezone.now())
    return {"last_job_id": job_id, "last_at": timezone.now()}


def test_a_schedule_that_does_well_is_no_warning() -> None:
    make_schedule()
    Schedule.objects.update(**job_of("successful"))
    Schedule.objects.create(name="to be planned", task_path=NOTE_TIME, every=60.0)
    assert warnings() == []


def test_a_schedule_is_late_after_two_minutes() -> None:
    make_schedule()
    Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=100))
    assert warnings() == []
    Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=140))
    assert warnings() == [LATE]


def test_a_schedule_that_nobody_plans_is_late_after_two_minutes() -> None:
    row = make_schedule()
    let_wait(row, timedelta(seconds=100))
    assert warnings() == []
    let_wait(row, timedelta(seconds=140))
    assert warnings() == [LATE]


def test_an_error_is_told() -> None:
    make_schedule()
    Schedule.objects.update(next_at=None, error="It is not planned: <b>")
    assert warnings() == ["Schedule each hour has an error: It is not planned: <b>"]


def test_a_last_run_that_failed_is_told_until_the_next(admin_client: Client) -> None:
    make_schedule()
    Schedule.objects.update(**job_of("failed"))
    assert warnings() == [FAILED]
    assert FAILED in read(admin_client)
    Schedule.objects.update(**job_of("successful"))
    assert warnings() == []


@pytest.mark.parametrize(("column", "count"), [("paused_at", 1), ("retired_at", 0)])
def test_what_does_not_run_is_told_only_as_paused(column: str, count: int) -> None:
    make_schedule()
    late = timezone.now() - timedelta(hours=1)
    Schedule.objects.update(next_at=late, error="x", **{column: late}, **job_of("failed"))
    said = warnings()
    assert len(said) == count
    assert all(text.startswith("The schedule each hour has been paused since") for text in said)


def test_not_all_of_many_are_named() -> None:
    Schedule.objects.bulk_create(
        Schedule(name=f"s{number}", task_path=NOTE_TIME, every=60.0, error="x")
        for number in range(20)
    )
    Schedule.objects.update(next_at=None, error="x")
    said = warnings()
    assert len(said) == 6
    assert said[-1] == "There are more schedules like that."
