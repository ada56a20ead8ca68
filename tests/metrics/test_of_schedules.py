"""What the address of the installation says of schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgjobs.metrics.of_installation import describe_installation
from django_pgjobs.queries import metrics as metrics_queries
from tests.factories import make_job
from tests.metrics.parsing import read, value_of
from tests.schedules.support import let_wait, make_schedule

pytestmark = pytest.mark.django_db


def test_schedules_say_how_late_they_are() -> None:
    late = make_schedule("late")
    good = make_schedule("good")
    now = timezone.now()
    type(late).objects.filter(pk=late.pk).update(
        next_at=now - timedelta(minutes=10), error="no such task"
    )
    type(good).objects.filter(pk=good.pk).update(next_at=now + timedelta(minutes=10))
    metrics = read(describe_installation())
    seconds = value_of(metrics, "pgjobs_schedule_late_seconds", schedule="late")
    assert seconds is not None and 599 < seconds < 700
    assert value_of(metrics, "pgjobs_schedule_late_seconds", schedule="good") == 0
    assert value_of(metrics, "pgjobs_schedule_error", schedule="late") == 1
    assert value_of(metrics, "pgjobs_schedule_error", schedule="good") == 0


def test_one_that_nobody_plans_is_late_since_it_waits() -> None:
    let_wait(make_schedule("waits"), timedelta(minutes=10))
    seconds = value_of(
        read(describe_installation()), "pgjobs_schedule_late_seconds", schedule="waits"
    )
    assert seconds is not None and 599 < seconds < 700


def test_of_many_schedules_those_in_trouble_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_queries, "MAX_SCHEDULES", 3)
    now = timezone.now()
    failed = make_job(status="failed")
    changes: dict[str, tuple[int, dict[str, Any]]] = {
        "a": (5, {}),
        "b": (6, {}),
        "w late": (150, {}),
        "x broken": (-60, {"error": "no such task"}),
        "y failed": (-60, {"last_job_id": failed}),
    }
    # Each one that is made fires those that are due.
    for schedule in [make_schedule(name) for name in changes]:
        seconds, columns = changes[schedule.name]
        next_at = now - timedelta(seconds=seconds)
        type(schedule).objects.filter(pk=schedule.pk).update(next_at=next_at, **columns)
    metrics = read(describe_installation())
    told = [each.labels["schedule"] for each in metrics["pgjobs_schedule_error"].samples]
    assert told == ["w late", "x broken", "y failed"]


def test_schedules_say_whether_their_last_job_failed() -> None:
    """The last that has finished: the period may be shorter than the retries of a job."""
    jobs = {
        "bad": ["failed"],
        "good": ["failed", "successful"],
        "new": ["ready"],
        "retries": ["failed", "ready"],
        "works": ["failed", "successful", "ready"],
    }
    for name, statuses in jobs.items():
        schedule = make_schedule(name)
        ids = [make_job(schedule=name, status=status) for status in statuses]
        type(schedule).objects.filter(pk=schedule.pk).update(last_job_id=ids[-1])
    metrics = read(describe_installation())
    shown = {name: value_of(metrics, "pgjobs_schedule_failed", schedule=name) for name in jobs}
    assert shown == {"bad": 1, "good": 0, "new": 0, "retries": 1, "works": 0}
