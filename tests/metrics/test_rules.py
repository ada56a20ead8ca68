"""The rules for alerts, on what the addresses really say: when each of them tells of something."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.db import DatabaseError
from django.utils import timezone
from prometheus_client import Metric

from django_pgjobs import pause
from django_pgjobs.metrics import of_installation
from django_pgjobs.metrics.of_installation import describe_installation
from django_pgjobs.metrics.of_worker import describe_worker
from django_pgjobs.models import Schedule, Statistic
from django_pgjobs.queries import numbers
from django_pgjobs.queries.overview import Installation, Transaction, get_installation
from django_pgjobs.queries.system import list_relations
from tests.factories import make_job, make_jobs, make_running_job, make_worker
from tests.helpers import ROOT
from tests.metrics.parsing import read
from tests.metrics.promql import evaluate
from tests.metrics.test_of_worker import FACTS
from tests.schedules.support import make_schedule

pytestmark = pytest.mark.django_db

[GROUP] = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())["groups"]
RULES = {rule["alert"]: rule["expr"] for rule in GROUP["rules"]}


def told(metrics: Mapping[str, Metric] | None = None) -> set[str]:
    """Return which rules hold, by default on what the installation says."""
    found = read(describe_installation()) if metrics is None else metrics
    return {name for name, expression in RULES.items() if evaluate(expression, found)}


def enter(minutes: int = 3, **counts: int) -> None:
    """Write statistics of a minute."""
    begins_at = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    Statistic.objects.create(queue_name="mail", task_path="t", begins_at=begins_at, **counts)


def test_nothing_is_told_where_all_is_well() -> None:
    make_worker()
    make_worker("gone:1", lease_seconds=-900, lost=True, ended_at=timezone.now())
    make_job()
    make_schedule()
    enter(successful=100, failed=5)
    enter(9, failed=50, lost=1)
    assert told() == set()


@pytest.mark.parametrize("few", [10_000, 2])
@pytest.mark.parametrize(
    ("minutes", "rules"),
    [
        (0, set()),
        (2, {"PgjobsQueueWithoutWorker"}),
        (6, {"PgjobsQueueWithoutWorker", "PgjobsQueueWaits"}),
    ],
)
def test_jobs_that_no_worker_takes(
    monkeypatch: pytest.MonkeyPatch, few: int, minutes: int, rules: set[str]
) -> None:
    """However many wait, and although nobody measures any more."""
    monkeypatch.setattr(numbers, "FEW", few)
    make_jobs(3, queue_name="mail", enqueued_at=timezone.now() - timedelta(minutes=minutes))
    assert told() == {"PgjobsNoWorker"} | rules
    make_worker(queues=["other"])
    assert told() == rules
    make_worker(queues=["mail"])
    assert told() == rules - {"PgjobsQueueWithoutWorker"}
    pause(queue="mail")
    assert told() == set()


@pytest.mark.parametrize(
    ("counts", "rules"),
    [
        ({"failed": 5, "successful": 44}, {"PgjobsJobsFail"}),
        ({"failed": 4, "successful": 4}, set()),
        ({"failed": 5, "successful": 45}, set()),
        ({"failed": 5, "successful": 44, "retried": 99, "cancelled": 99}, {"PgjobsJobsFail"}),
        ({"lost": 1}, {"PgjobsWorkersAreLost"}),
    ],
)
def test_jobs_that_fail_or_are_lost(counts: dict[str, int], rules: set[str]) -> None:
    make_worker()
    enter(**counts)
    assert told() == rules


def test_a_job_that_looks_stuck() -> None:
    changed_at = timezone.now() - timedelta(hours=1)
    progress = {"done": 1, "changed_at": changed_at.isoformat(), "longest_pause": 2.5}
    make_running_job(last_attempted_at=timezone.now() - timedelta(hours=2), progress=progress)
    assert told() == {"PgjobsJobsAreStuck"}


def test_a_worker_that_nobody_rescues() -> None:
    make_worker()
    make_worker("gone:1", lease_seconds=-5)
    assert told() == {"PgjobsNobodyRescues"}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"next_at": 130}, "PgjobsScheduleLate"),
        ({"error": "no such task"}, "PgjobsScheduleBroken"),
        ({"last_job_id": "failed"}, "PgjobsScheduleFailed"),
    ],
)
def test_a_schedule_in_trouble(changes: dict[str, Any], rule: str) -> None:
    make_worker()
    make_schedule()
    if "next_at" in changes:
        changes = {"next_at": timezone.now() - timedelta(seconds=changes["next_at"])}
    if "last_job_id" in changes:
        changes = {"last_job_id": make_job(status="failed")}
    Schedule.objects.update(**changes)
    assert told() == {rule}


def test_an_old_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_an_old_one(cursor: Any, **bounds: Any) -> Installation:
        old = Transaction(1, "psql", "idle in transaction", 1_801.0)
        return get_installation(cursor, **bounds)._replace(old_transaction=old)

    monkeypatch.setattr(of_installation, "get_installation", with_an_old_one)
    make_worker()
    assert told() == {"PgjobsOldTransaction"}


def test_dead_rows_of_the_table_of_live_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    make_worker()
    monkeypatch.setattr(
        of_installation,
        "list_relations",
        lambda cursor: [each._replace(dead=1_000_001) for each in list_relations(cursor)],
    )
    assert told() == {"PgjobsDeadRows"}


def test_an_address_that_says_nothing() -> None:
    assert told({}) == {"PgjobsMetricsMissing"}


def test_a_part_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise DatabaseError("permission denied")

    make_worker()
    monkeypatch.setitem(of_installation.PARTS, "limits", refuse)
    assert told() == {"PgjobsMetricsIncomplete"}


@pytest.mark.parametrize(
    ("is_live", "is_ready", "rules"),
    [
        (True, True, set()),
        (True, False, {"PgjobsWorkerNotReady"}),
        (False, False, {"PgjobsWorkerNotReady", "PgjobsWorkerStandsStill"}),
    ],
)
def test_a_worker_that_does_not_do_well(is_live: bool, is_ready: bool, rules: set[str]) -> None:
    facts = dataclasses.replace(FACTS, is_live=is_live, is_ready=is_ready)
    of_worker = read(describe_worker(facts, {}))
    assert told(of_worker) - {"PgjobsMetricsMissing"} == rules


def test_every_rule_is_told_of_here() -> None:
    here = (ROOT / "tests" / "metrics" / "test_rules.py").read_text()
    assert set(re.findall(r'"(Pgjobs\w+)"', here)) == set(RULES)
