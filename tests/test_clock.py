"""Decisions use the clock of the server: clients send durations, whatever their clock says."""

from __future__ import annotations

import datetime as datetime_module
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo

import pytest
from django.utils import timezone

from django_pgjobs import reschedule
from django_pgjobs.models import Job
from tests import tasks

AHEAD = timedelta(hours=1)


@pytest.fixture
def wrong_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every clock of this process be an hour ahead."""
    real_time: Callable[[], float] = time.time

    class WrongDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.fromtimestamp(time.time(), tz)

    monkeypatch.setattr(time, "time", lambda: real_time() + AHEAD.total_seconds())
    monkeypatch.setattr(datetime_module, "datetime", WrongDatetime)
    monkeypatch.setattr(
        timezone, "now", lambda: datetime.fromtimestamp(time.time(), datetime_module.UTC)
    )


@pytest.mark.django_db
@pytest.mark.usefixtures("wrong_clock")
def test_a_delay_counts_from_the_clock_of_the_server() -> None:
    """A worker or a web server whose clock is wrong delays nothing and hurries nothing."""
    result = tasks.add.using(run_after=timedelta(seconds=5)).enqueue(1, 2)
    job = Job.objects.get(pk=result.id)
    assert job.run_after == job.due_at == job.enqueued_at + timedelta(seconds=5)


@pytest.mark.django_db
@pytest.mark.usefixtures("wrong_clock")
def test_a_new_delay_counts_from_the_clock_of_the_server() -> None:
    result = tasks.add.enqueue(1, 2)
    assert reschedule(result, timedelta(seconds=5))
    job = Job.objects.get(pk=result.id)
    assert job.due_at is not None
    assert timedelta(seconds=5) <= job.due_at - job.enqueued_at < timedelta(minutes=30)
