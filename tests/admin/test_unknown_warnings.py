"""Warnings about jobs whose tasks no live worker knows: the accident of a deployment."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_pgjobs.models import Job
from tests.admin.warning_support import linked_ids, no_dead_rows, notices, texts
from tests.factories import ago, make_job, make_jobs, make_worker
from tests.http import tasks as remote

__all__ = ["no_dead_rows"]

pytestmark = pytest.mark.django_db

GONE = "shop.tasks.gone"
REMEDY = (
    "knows this task. Deploy its code, or load it: as tasks.py of an app, or by "
    "PGJOBS['TASK_MODULES']."
)
SAID = f"Jobs of {GONE} wait and no live worker that serves their queue (default) {REMEDY}"


def test_a_job_that_no_worker_has_met_yet(admin_client: Client) -> None:
    make_worker()
    make_jobs(3)
    job_id = make_job(GONE)
    [notice] = notices()
    assert (notice.kind, notice.subject, notice.text) == ("unknown_task", GONE, SAID)
    assert linked_ids(admin_client, notice) == {job_id}


def test_a_job_that_was_put_off_for_it() -> None:
    make_worker()
    make_job(GONE, due_at=ago(-250), note="unknown task")
    assert texts() == [SAID]


def test_a_job_with_keys_is_found_as_well() -> None:
    make_worker()
    make_job(GONE, concurrency_key="shop:1")
    assert texts() == [SAID]


def test_queues_of_a_task_are_one_warning() -> None:
    make_worker()
    for number in range(4):
        make_job(GONE, queue_name=f"queue-{number}")
    [text] = texts()
    assert "their queue (queue-0, queue-1, queue-2, …) knows" in text


@pytest.mark.parametrize(
    "columns",
    [
        {"task_paths": [GONE]},
        {"task_paths": [GONE], "queues": ["default"]},
    ],
    ids=str,
)
def test_it_is_enough_that_one_worker_knows_it(columns: dict[str, Any]) -> None:
    make_worker()
    make_worker("b:1", **columns)
    make_job(GONE)
    make_job(GONE, due_at=ago(-250), note="unknown task")
    assert texts() == []


@pytest.mark.parametrize(
    "columns",
    [
        {"task_paths": [GONE], "queues": ["other"]},
        {"task_paths": [GONE], "excluded_queues": ["default"]},
        {"task_paths": [GONE], "backends": ["other"]},
        {"task_paths": [GONE], "lease_seconds": -5, "ended_at": ago(9_000)},
    ],
    ids=str,
)
def test_one_that_takes_other_jobs_is_none(columns: dict[str, Any]) -> None:
    make_worker()
    make_worker("b:1", **columns)
    make_job(GONE)
    assert texts() == [SAID]


def test_what_may_not_run_by_now_is_not_told_of() -> None:
    make_worker()
    make_job(GONE, due_at=ago(-250))
    make_job(GONE, hold="dependencies", waits_for=1)
    assert texts() == []


def test_where_nobody_serves_the_queue_that_is_told() -> None:
    make_worker(queues=["mail"])
    make_job(GONE)
    assert [notice.kind for notice in notices()] == ["unserved"]


def test_a_remote_task_in_a_queue_that_runjobs_serves() -> None:
    make_worker()
    path = remote.resize.module_path
    job_id = make_job(path)
    said = [f"Jobs of {path} wait and no live worker over HTTP takes them (default)."]
    assert texts() == said
    note = "left to workers over HTTP: its task is remote"
    Job.objects.filter(pk=job_id).update(due_at="2126-01-01T00:00Z", note=note)
    assert texts() == []
    Job.objects.filter(pk=job_id).update(due_at="2026-01-01T00:00Z")
    assert texts() == said
