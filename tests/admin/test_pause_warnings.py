"""Warnings about what is paused: each is told with who, since when, why and until when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from django_pgjobs import pause
from django_pgjobs.admin.overview.destinations import page_of
from tests.admin.warning_support import no_dead_rows, notices, texts
from tests.factories import ago, make_job, make_jobs, make_worker
from tests.schedules.support import make_schedule

__all__ = ["no_dead_rows"]

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("target", [{"task": "tests.tasks.add"}, {"key": "shop:*"}], ids=str)
def test_a_job_that_a_pause_keeps_is_none_that_waits_for_long(target: dict[str, str]) -> None:
    make_worker(task_paths=["tests.tasks.add", "tests.tasks.fail"])
    pause(**target)
    make_job(concurrency_key="shop:1", enqueued_at=ago(900))
    assert [notice.kind for notice in notices()] == ["paused"]
    job_id = make_job("tests.tasks.fail", enqueued_at=ago(400))
    assert texts()[0].startswith(f"Job {job_id}, the oldest of queue default that may run")


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_paused_queue_with_jobs_and_without(jobs: int) -> None:
    make_worker()
    pause(queue="default", by="ann", reason="PDF bug")
    make_jobs(jobs, enqueued_at=ago(9_000))
    [notice] = notices()
    assert (notice.kind, notice.subject) == ("paused", "queue:default")
    assert notice.text.startswith("The queue “default” has been paused since ")
    assert notice.text.endswith(" by ann, because: PDF bug.")


def test_a_paused_schedule() -> None:
    make_worker()
    columns = {"paused_at": timezone.now(), "paused_by": "ann", "pause_reason": "PDF bug"}
    make_schedule("nightly", **columns)
    make_schedule("gone", **columns, retired_at=timezone.now())
    [notice] = notices()
    assert notice.text.startswith("The schedule nightly has been paused since ")
    assert notice.text.endswith(" by ann, because: PDF bug.")
    assert page_of(notice).page == "pgjobs_schedule_changelist"


def test_what_is_paused_beside_queues(admin_client: Client) -> None:
    """Nobody knows which jobs wait for it: whoever looks at an empty queue is told all the same."""
    pause(task="tests.tasks.add", by="ann", reason="PDF bug")
    pause(key="shop:*", until=timezone.now() + timedelta(hours=1))
    key, task = notices()
    assert key.text.startswith("The concurrency key “shop:*” has been paused since ")
    assert "; it resumes " in key.text
    assert task.text.startswith("The task tests.tasks.add has been paused since ")
    assert task.text.endswith(" by ann, because: PDF bug.")
    assert (page_of(task).page, task.subject) == (
        "pgjobs_queuesettings_changelist",
        "task:tests.tasks.add",
    )
