"""What the address of the installation says of jobs: queues without any, and those that hang."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgjobs.metrics import of_installation
from django_pgjobs.metrics.of_installation import describe_installation
from tests.factories import make_job, make_running_job, make_worker
from tests.metrics.parsing import read, value_of

pytestmark = pytest.mark.django_db


def test_a_queue_that_is_served_and_has_no_jobs_says_so() -> None:
    make_worker(queues=["mail"])
    make_job(queue_name="other")
    metrics = read(describe_installation())
    for state in ("ready", "running", "scheduled", "retrying", "blocked"):
        assert value_of(metrics, "pgjobs_queue_jobs", queue="mail", state=state) == 0
    assert value_of(metrics, "pgjobs_queue_jobs", queue="other", state="ready") == 1


@pytest.mark.slow
def test_jobs_that_look_stuck_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert value_of(read(describe_installation()), "pgjobs_stuck_jobs") == 0
    changed_at = timezone.now() - timedelta(hours=1)
    make_running_job(
        last_attempted_at=timezone.now() - timedelta(hours=2),
        progress={"done": 1, "changed_at": changed_at.isoformat(), "longest_pause": 2.5},
    )
    assert value_of(read(describe_installation()), "pgjobs_stuck_jobs") == 1

    def sleep(cursor: Any) -> None:
        cursor.execute("SELECT pg_sleep(30)")

    monkeypatch.setattr(of_installation, "find_stuck", sleep)
    metrics = read(describe_installation())
    assert value_of(metrics, "pgjobs_stuck_jobs") is None
    assert value_of(metrics, "pgjobs_workers", state="live") == 1
