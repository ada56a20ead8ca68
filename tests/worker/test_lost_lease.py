"""A worker that loses its lease: ends what it runs, writes nothing, and goes on anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries import jobs
from tests import tasks as plain_tasks
from tests.factories import count_jobs, get_job, get_worker, make_jobs
from tests.helpers import wait_until
from tests.models import Effect
from tests.worker import tasks
from tests.worker.support import Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def lose_lease(worker: ThreadedWorker, *, rescued_by_another: bool = True) -> int:
    """Let a worker's lease be over, and the worker notice; return its old id."""
    old = worker.id
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_worker SET lease_expires_at = now() - interval '1 s'")
        if rescued_by_another:
            jobs.rescue_jobs(cursor, max_jobs=100, default_max_losses=3)
    worker.runner.leases.wake()
    wait_until(lambda: worker.id != old)
    return old


@pytest.mark.parametrize("task", [tasks.spin, tasks.sleep_async])
def test_running_jobs_are_interrupted_and_what_they_came_to_is_lost(
    start_thread: Start, task: Any
) -> None:
    """S2.21: another worker has rescued them."""
    worker = start_thread(concurrency=1)
    job = task.using(max_losses=1).enqueue()
    wait_until(lambda: worker.runner.state.held)
    old = lose_lease(worker)
    wait_until(lambda: not worker.runner.state.held)
    row = get_job(job.id)
    assert (row.status, row.attempts, row.lost_count) == ("failed", 1, 1)
    assert row.errors[-1]["exception_class"].endswith(".WorkerLost")
    wait_until(lambda: get_worker(old).lost)


@pytest.mark.parametrize("task", [tasks.spin, tasks.sleep_async])
def test_running_jobs_that_nobody_rescued_yet_are_run_again(start_thread: Start, task: Any) -> None:
    """S2.21: given back, or rescued by this very worker under its new id."""
    worker = start_thread(concurrency=1, shutdown_timeout=0.1)
    job = task.enqueue()
    wait_until(lambda: worker.runner.state.held)
    first = get_job(job.id).claim
    lose_lease(worker, rescued_by_another=False)
    wait_until(lambda: get_job(job.id).worker_id == worker.id)
    assert get_job(job.id).claim >= first + 2, "the return and the claim"


def test_the_worker_goes_on_under_its_new_id(start_thread: Start) -> None:
    """It claims again, is woken again, and ends in good order."""
    worker = start_thread()
    wait_until(lambda: get_worker(worker.id).listening)
    lose_lease(worker)
    wait_until(lambda: get_worker(worker.id).listening)
    job = plain_tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).status == "successful")
    assert worker.stop() == 0
    assert get_worker(worker.id).ended_at is not None


def test_a_job_that_ends_after_the_loss_runs_again_and_only_the_second_run_counts(
    start_thread: Start, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker is the one that claims it again."""
    worker = start_thread(concurrency=1)
    job = tasks.wait_at_gate_stubbornly.enqueue([1])
    gate.wait_entered()
    lose_lease(worker)
    assert get_job(job.id).lost_count == 1
    gate.open()
    wait_until(lambda: get_job(job.id).status == "successful")
    row = get_job(job.id)
    assert (row.attempts, row.lost_count, len(row.worker_ids)) == (2, 1, 2)
    wait_until(lambda: not worker.runner.state.held)
    assert f"job={job.id} outcome=done not written: the claim is lost" in caplog.text


@pytest.mark.slow
def test_jobs_that_were_claimed_ahead_run_once(start_thread: Start, gate: Gate) -> None:
    worker = start_thread(concurrency=1)
    make_jobs(30)
    wait_until(lambda: count_jobs(status="successful") == 30)
    tasks.wait_at_gate.enqueue()
    enqueued = [plain_tasks.record.enqueue(f"{number}") for number in range(20)]
    gate.wait_entered()
    lose_lease(worker)
    gate.open()
    wait_until(lambda: {get_job(job.id).status for job in enqueued} == {"successful"})
    keys = list(Effect.objects.values_list("key", flat=True))
    assert len(keys) == len(set(keys)) == 20
