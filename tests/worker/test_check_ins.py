"""Sentry's crons: what a worker tells of the jobs of schedules, and of which it tells nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import WARNING

from django_pgjobs.checks import check_sentry
from django_pgjobs.models import Job, Schedule
from django_pgjobs.queries.schedules import TimingColumns
from django_pgjobs.worker.running import check_ins
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
    assert (first["monitor_slug"], first["status"]) == (slug_of("Nightly report"), "ok")
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
    def refuse(**given: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(sys.modules["sentry_sdk.crons"], "capture_checkin", refuse)
    run_once(worker, make_schedule())
    wait_until(lambda: 'Sentry was not told of schedule and time ["each hour"' in caplog.text)
    tasks.add.enqueue(1, 2)
    wait_until(lambda: Job.objects.filter(task_path=tasks.add.module_path).get().status != "ready")


def test_sentry_that_is_not_installed_is_told_of_once(
    worker: ThreadedWorker,
    sent: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "sentry_sdk.crons", None)
    check_ins._tell_that_it_lacks.cache_clear()
    for name in ("one", "two"):
        run_once(worker, make_schedule(name))
    worker.close()
    assert caplog.text.count("no schedule checks in") == 1
    assert "Traceback" not in caplog.text


def test_a_check_tells_that_sentry_is_not_installed(
    sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    assert check_sentry() == []
    monkeypatch.setitem(sys.modules, "sentry_sdk.crons", None)
    [found] = check_sentry()
    assert (found.id, found.level) == ("pgjobs.W007", WARNING)
    settings.PGJOBS = {}
    assert check_sentry() == []


@pytest.mark.parametrize(
    ("when", "schedule"),
    [
        (TimingColumns("@daily", None, "UTC"), {"type": "crontab", "value": "@daily"}),
        (TimingColumns(None, 60.0, "UTC"), {"type": "interval", "value": 1, "unit": "minute"}),
        (TimingColumns(None, 10.0, "UTC"), None),
        (TimingColumns(None, 90.0, "UTC"), None),
        (TimingColumns("*/10 * * * * *", None, "UTC"), None),
        (TimingColumns(None, None, "UTC"), None),
        (None, None),
    ],
)
def test_a_monitor_is_as_fine_as_sentry_is(
    when: TimingColumns | None, schedule: dict[str, Any] | None
) -> None:
    config = monitor_of(when)
    assert (config and config["schedule"]) == schedule


def test_slugs_are_what_sentry_takes() -> None:
    assert slug_of("nightly-report_2") == "nightly-report_2"
    long, other = slug_of("x" * 60), slug_of("x" * 61)
    assert len(long) == len(other) == 50 and long != other
    for name in ("日報", "-", "é", "Ünlaut ok/x y", NOTE_TIME, "a-" * 60):
        assert re.fullmatch("[a-z0-9_][a-z0-9_-]{0,48}[a-z0-9_]", slug_of(name)), slug_of(name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("日報", "週報"),
        ("Ünlaut ok/x y", "Ünlaut ok x y"),
        ("Nightly report", "nightly report"),
        ("nightly report", "nightly-report"),
        ("-nightly", "nightly"),
        ("shop.tasks.sync", "shop-tasks-sync"),
    ],
)
def test_two_schedules_are_two_monitors(one: str, other: str) -> None:
    assert slug_of(one) != slug_of(other)
