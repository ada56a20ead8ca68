"""The rows that the tests make: they are what a project's own SQL would make."""

from __future__ import annotations

import pytest
from psycopg import sql

from tests.factories import (
    count_jobs,
    get_job,
    get_worker,
    make_job,
    make_jobs,
    make_running_job,
    make_worker,
)

pytestmark = pytest.mark.django_db


def test_a_job_needs_nothing_but_a_task() -> None:
    job = get_job(make_job())
    assert (job.status, job.queue_name, job.backend, job.args) == (
        "ready",
        "default",
        "default",
        [1, 2],
    )
    assert (job.claim, job.attempts, job.max_attempts, job.due_at) == (0, 0, None, None)


def test_columns_take_python_values_and_expressions() -> None:
    job = get_job(
        make_job(
            "shop.tasks.f",
            args=[1, {"a": None}],
            kwargs={"b": "ä"},
            tags=["x", "y"],
            errors=[{"message": "m"}],
            run_after=sql.SQL("now() + interval '1 hour'"),
        )
    )
    assert (job.args, job.kwargs, job.tags) == ([1, {"a": None}], {"b": "ä"}, ["x", "y"])
    assert job.errors == [{"message": "m"}]
    assert job.due_at == job.run_after > job.enqueued_at


def test_many_jobs_come_in_one_statement_and_can_be_counted() -> None:
    ids = make_jobs(50, queue_name="many")
    assert ids == sorted(set(ids))
    assert count_jobs(queue_name="many", status="ready") == 50
    assert count_jobs(queue_name="few") == 0


def test_a_finished_job_lies_where_finished_jobs_lie() -> None:
    job = get_job(make_job(status="failed", finished_at=sql.SQL("now()")))
    assert job.status == "failed"
    assert count_jobs(status="failed") == 1


def test_a_running_job_has_a_worker_with_a_lease() -> None:
    job = make_running_job(claim=7)
    worker = get_worker(job.worker_id)
    assert (job.status, job.claim, job.attempts) == ("running", 7, 1)
    assert worker.lease_expires_at > worker.heartbeat_at
    assert get_worker(make_worker(lease_seconds=-1)).lease_expires_at < worker.heartbeat_at
