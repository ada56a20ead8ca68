"""By whose clock a job expires: the server's, counted from before the claim was sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_pgjobs import task
from django_pgjobs.exceptions import JobExpired
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.running import calling
from tests import tasks
from tests.factories import get_job, make_job
from tests.helpers import wait_until
from tests.worker.support import Bench, Gate, ThreadedWorker, make_attempt_of

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
EXPIRY = timedelta(seconds=0.2)
ran: list[str] = []


@task(expires=EXPIRY)
def soon(name: str) -> None:
    """Be worth nothing after a fifth of a second."""
    ran.append(name)


@pytest.fixture
def _slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let claimed jobs arrive after the job of the test has expired."""
    round_trip = OwnConnection.round_trip

    def late(self: OwnConnection, sends: Any) -> list[list[Any]]:
        answers = round_trip(self, sends)
        if self.role == "pump" and any(len(row) > 15 for rows in answers for row in rows):
            time.sleep(2 * EXPIRY.total_seconds())
        return answers

    monkeypatch.setattr(OwnConnection, "round_trip", late)


@pytest.mark.usefixtures("_slow_answers")
@pytest.mark.parametrize("options", [{}, {"concurrency_key": "one"}])
def test_no_attempt_begins_late_because_the_claim_took_long(
    start_thread: Start, options: dict[str, Any]
) -> None:
    ran.clear()
    start_thread(poll_interval=0.05)
    job = soon.using(**options).enqueue("late")
    wait_until(lambda: get_job(job.id).status in ("cancelled", "successful"))
    assert (get_job(job.id).status, ran) == ("cancelled", [])


@pytest.mark.parametrize("columns", [{}, {"concurrency_key": "one"}])
def test_what_a_claim_waits_for_does_not_make_a_job_expire(
    start_thread: Start, gate: Gate, columns: dict[str, Any]
) -> None:
    """It counts from when the claim itself was sent, not from what travelled before it."""
    worker = start_thread(poll_interval=0.05)
    before = time.monotonic()
    expires_at = get_job(make_job("tests.tasks.add")).enqueued_at + timedelta(hours=1)
    make_job("tests.worker.tasks.wait_at_gate", args=["gate"], expires_at=expires_at, **columns)
    gate.wait_entered()
    [attempt] = [each for each in worker.runner.state.held.values() if each.row.expires_in]
    assert before < attempt.row.asked_at < attempt.claimed_at
    assert attempt.expires == attempt.row.asked_at + (attempt.row.expires_in or 0)


def test_a_job_that_expires_while_its_context_is_read_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempt = make_attempt_of(1, tasks.describe_context.module_path)

    def expire(attempt: Any) -> None:
        attempt.expires = 0.0

    monkeypatch.setattr(calling, "task_result", expire)
    with pytest.raises(JobExpired):
        calling.prepare(attempt)


def test_a_claim_by_hand_counts_from_before_it_was_sent(bench: Bench) -> None:
    soon.enqueue("a")
    attempt = bench.claim()
    assert attempt.row.asked_at <= attempt.claimed_at
    assert attempt.expires <= attempt.row.asked_at + EXPIRY.total_seconds()
