"""Rows that somebody writes with columns of the engine's own: none of them is stuck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql

from django_pgjobs.control.explain import explain
from tests.factories import get_job, make_job
from tests.helpers import wait_until
from tests.worker import declared  # noqa: F401 - its tasks are loaded
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
NOW = sql.SQL("now()")
HOUR_AGO = sql.SQL("now() - interval '1 hour'")


def is_over(job_id: int) -> bool:
    return get_job(job_id).status in ("successful", "failed", "cancelled")


@pytest.mark.parametrize("worker_id", [None, 999_999, "its own"])
def test_a_row_that_says_it_runs_is_taken_over(start_thread: Start, worker_id: Any) -> None:
    """Also if it says that a worker runs it which lives and knows nothing of it."""
    worker = start_thread(lease=1.0, poll_interval=0.05)
    given = worker.id if worker_id == "its own" else worker_id
    job_id = make_job(status="running", worker_id=given)
    wait_until(lambda: is_over(job_id))
    job = get_job(job_id)
    assert (job.status, job.result) == ("successful", 3)
    assert job.lost_count == (0 if worker_id == "its own" else 1)


@pytest.mark.slow
def test_a_job_that_a_worker_does_run_is_left_to_it(start_thread: Start, gate: Any) -> None:
    """Over several of the times at which it asks what else it is said to run."""
    start_thread(lease=1.0, poll_interval=0.05)
    job_id = make_job("tests.worker.tasks.wait_at_gate")
    gate.wait_entered()
    claim = get_job(job_id).claim
    stray = make_job(status="running", worker_id=get_job(job_id).worker_id)
    wait_until(lambda: is_over(stray))
    gate.open()
    wait_until(lambda: is_over(job_id))
    assert (get_job(job_id).attempts, get_job(job_id).claim) == (1, claim)


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"attempts": 30}, "failed"),
        ({"lost_count": 30, "max_losses": 2}, "failed"),
        ({"interruptions": 30}, "successful"),
        ({"claim": 9_000_000_000_000_000_000}, "successful"),
        ({"worker_id": 999_999, "worker_ids": ["gone:1"]}, "successful"),
        ({"started_at": NOW, "last_attempted_at": NOW}, "successful"),
        ({"finished_at": HOUR_AGO, "result": 17, "progress": {"done": 1}}, "successful"),
        ({"due_at": HOUR_AGO}, "successful"),
        ({"lane": "no lane"}, "successful"),
        ({"merged_count": 3, "note": "mine", "errors": [{}]}, "successful"),
        ({"enqueued_at": sql.SQL("now() + interval '1 day'")}, "successful"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_a_waiting_row_runs_or_fails_with_a_reason(
    start_thread: Start, columns: dict[str, Any], status: str
) -> None:
    job_id = make_job(**columns)
    start_thread(lease=1.0, poll_interval=0.05)
    wait_until(lambda: is_over(job_id))
    job = get_job(job_id)
    assert job.status == status
    assert job.result == (3 if status == "successful" else None)
    assert (job.errors != []) == (status == "failed" or "errors" in columns)
    assert job.finished_at >= job.last_attempted_at


def test_explain_says_what_a_row_waits_for_that_says_it_runs() -> None:
    reason, nobody = explain(make_job(status="running")).reasons
    assert nobody.code == "no_worker"
    assert reason.code == "lease_lost"
    assert reason.text.startswith("Its row says that it runs, but no worker does that")


def test_explain_says_that_a_row_waits_for_jobs_that_are_not_named() -> None:
    found = explain(make_job(hold="dependencies", waits_for=2))
    assert found.reasons[0].code == "dependencies"
    assert "Run it now all the same" in found.reasons[0].text


def test_explain_says_that_a_row_may_lack_what_its_task_declares() -> None:
    """Of a task that is loaded here, and declares something."""
    codes = [reason.code for reason in explain(make_job("tests.worker.declared.placed")).reasons]
    assert codes == ["no_worker", "undeclared"]
    job_id = make_job("tests.worker.declared.placed", is_declared=True)
    assert [reason.code for reason in explain(job_id).reasons] == ["no_worker", "behind"]
    for path in ("tests.worker.declared.free", "nobody.has.it"):
        assert [reason.code for reason in explain(make_job(path)).reasons] == [
            "no_worker",
            "behind",
        ]
