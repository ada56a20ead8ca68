"""Sentry's crons: what a worker tells of the jobs of schedules, and of which it tells nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from django_pgjobs.models import Job, Schedule
from django_pgjobs.queries.schedules import When
from django_pgjobs.worker.running.check_ins import monitor_of, slug_of
from tests import tasks
from tests.helpers import wait_until
from tests.schedules.support import NOTE_TIME, fire, let_be_due, make_schedule
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, settings: Any) -> list[dict[str, Any]]:
    """What Sentry was told; its package need not be installed."""
    told: list[dict[str, Any]] = []
    package, crons = ModuleType("sentry_sdk"), ModuleType("sentry_sdk.crons")
    crons.capture_checkin = lambda **given: told.append(given)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentry_sdk", package)
    monkeypatch.setitem(sys.modules, "sentry_sdk.crons", crons)
    settings.PGJOBS = {**settings.PGJOBS, "SENTRY_CHECK_INS": True}
    return told


@pytest.fixture
def worker() -> Iterator[ThreadedWorker]:
    made = ThreadedWorker()
    made.start()
    yield made
    made.close()


def run_once(worker: ThreadedWorker, row: Schedule) -> Job:
    """Let a schedule be due, and its job end."""
    let_be_due(row, timedelta(hours=1))
    fire(row)
    wait_until(lambda: not Job.objects.unfinished().exists())
    return Job.objects.filter(schedule=row.name).latest("pk")


def test_a_success_and_a_failure_check_in(
    worker: ThreadedWorker, sent: list[dict[str, Any]]
) -> None:
    good = make_schedule("Nightly report", cron="0 * * * *", timezone="Europe/Berlin")
    run_once(worker, good)
    wait_until(lambda: len(sent) == 1)
    bad = make_schedule("bad", tasks.fail.module_path, every=7_200.0)
    assert run_once(worker, bad).status == "failed"
    wait_until(lambda: len(sent) == 2)
    first, second = sent
    assert (first["monitor_slug"], first["status"]) == ("nightly-report", "ok")
    assert first["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 * * * *"},
        "timezone": "Europe/Berlin",
        "checkin_margin": 5,
    }
    assert first["duration"] >= 0
    assert (second["monitor_slug"], second["status"]) == ("bad", "error")
    assert second["monitor_config"]["schedule"] == {
        "type": "interval", "value": 120, "unit": "minute",
    }  # fmt: skip
    assert first["check_in_id"] != second["check_in_id"]


def test_other_jobs_and_other_settings_tell_nothing(
    worker: ThreadedWorker, sent: list[dict[str, Any]], settings: Any
) -> None:
    tasks.add.enqueue(1, 2)
    wait_until(lambda: Job.objects.filter(status="successful").exists())
    settings.PGJOBS = {}
    run_once(worker, make_schedule())
    worker.close()
    assert sent == []


def test_sentry_that_raises_stops_nothing(
    worker: ThreadedWorker,
    sent: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And so does Sentry that is not installed."""
    monkeypatch.setitem(sys.modules, "sentry_sdk.crons", None)
    run_once(worker, make_schedule())
    wait_until(lambda: "Sentry was not told" in caplog.text)
    tasks.add.enqueue(1, 2)
    wait_until(lambda: Job.objects.filter(task_path=tasks.add.module_path).get().status != "ready")


@pytest.mark.parametrize(
    ("when", "schedule"),
    [
        (When("@daily", None, "UTC"), {"type": "crontab", "value": "@daily"}),
        (When(None, 60.0, "UTC"), {"type": "interval", "value": 1, "unit": "minute"}),
        (When(None, 10.0, "UTC"), None),
        (When(None, 90.0, "UTC"), None),
        (When("*/10 * * * * *", None, "UTC"), None),
        (When(None, None, "UTC"), None),
        (None, None),
    ],
)
def test_a_monitor_is_as_fine_as_sentry_is(
    when: When | None, schedule: dict[str, Any] | None
) -> None:
    config = monitor_of(when)
    assert (config and config["schedule"]) == schedule


def test_slugs_are_what_sentry_takes() -> None:
    assert slug_of("Nightly report") == "nightly-report"
    assert slug_of(NOTE_TIME) == "tests-schedules-tasks-note_time"
    long, other = slug_of("x" * 60), slug_of("x" * 61)
    assert len(long) == len(other) == 50 and long != other
    assert slug_of("日報") != slug_of("週報")
    assert all(slug_of(name) for name in ("日報", "-", "é"))
