"""The end of a worker: in good order, or because a part of it is gone; no job is lost by it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from django_pgjobs.worker.announcer import Announcer
from django_pgjobs.worker.leases import LeaseKeeper
from django_pgjobs.worker.pruner import Pruner
from django_pgjobs.worker.pump import Pump
from django_pgjobs.worker.runner import EXIT_CRASHED, EXIT_INTERRUPTED
from django_pgjobs.worker.upkeep import Upkeep
from django_pgjobs.worker.watchdog import Watchdog
from tests import tasks as plain_tasks
from tests.factories import count_jobs, get_job, get_worker, make_jobs
from tests.helpers import wait_until
from tests.worker import tasks
from tests.worker.support import Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def test_a_worker_that_stops_waits_for_what_runs_and_begins_nothing(
    start_thread: Start, gate: Gate
) -> None:
    """S1.4, S4.15."""
    worker = start_thread(concurrency=1)
    running = tasks.wait_at_gate.enqueue([1])
    gate.wait_entered()
    waiting = plain_tasks.add.enqueue(1, 2)
    worker.runner.ask_to_stop("test")
    wait_until(lambda: worker.runner.state.stopping)
    gate.open()
    assert worker.join() == 0
    assert get_job(running.id).result == [1]
    assert (get_job(waiting.id).status, get_job(waiting.id).attempts) == ("ready", 0)
    row = get_worker(worker.id)
    assert row.ended_at is not None
    assert not row.lost


@pytest.mark.parametrize("task", [tasks.spin, tasks.sleep_async])
def test_what_does_not_end_in_time_goes_back_uncounted(start_thread: Start, task: Any) -> None:
    """S1.4, S4.15."""
    worker = start_thread(shutdown_timeout=0.1)
    job = task.enqueue()
    wait_until(lambda: get_job(job.id).status == "running")
    assert worker.stop() == 0
    row = get_job(job.id)
    assert (row.status, row.attempts, row.note) == ("ready", 0, "released at shutdown")
    assert row.worker_ids == row.errors == []


def test_jobs_that_were_claimed_ahead_go_back_at_once(start_thread: Start, gate: Gate) -> None:
    """S4.15: fetched but not started."""
    make_jobs(40)
    tasks.wait_at_gate.enqueue()
    make_jobs(40)
    worker = start_thread(concurrency=1, shutdown_timeout=10.0)
    gate.wait_entered()
    worker.runner.ask_to_stop("test")
    wait_until(lambda: count_jobs(status="ready", attempts=0) == 40)
    assert count_jobs(status="running") == 1
    gate.open()
    assert worker.join() == 0
    assert count_jobs(status="successful") == 41


def test_a_second_signal_gives_everything_back_and_leaves(start_thread: Start, gate: Gate) -> None:
    """PITFALLS rule 7."""
    worker = start_thread(shutdown_timeout=60.0)
    jobs = [tasks.wait_at_gate.enqueue() for _ in range(2)]
    gate.wait_entered(2)
    worker.send(signal.SIGTERM)
    wait_until(lambda: worker.runner.state.stopping)
    worker.send(signal.SIGTERM)
    assert worker.join() == EXIT_INTERRUPTED
    assert worker.left_at_once
    assert {(get_job(job.id).status, get_job(job.id).attempts) for job in jobs} == {("ready", 0)}
    assert get_worker(worker.id).ended_at is not None


def test_a_quiet_worker_claims_nothing_and_goes_on(start_thread: Start, gate: Gate) -> None:
    """ADMIN 6: SIGUSR1."""
    worker = start_thread()
    running = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    # No claim is under way any more.
    wait_until(lambda: get_worker(worker.id).listening)
    worker.send(signal.SIGUSR1)
    wait_until(lambda: worker.runner.state.stopping)
    waiting = plain_tasks.add.enqueue(1, 2)
    gate.open()
    wait_until(lambda: get_job(running.id).status == "successful")
    assert get_job(waiting.id).status == "ready"
    assert worker.is_running


@pytest.mark.parametrize(
    "role",
    [Pump, LeaseKeeper, Upkeep, Watchdog, Announcer, Pruner],
    ids=lambda role: role.__name__,
)
def test_a_worker_that_lost_a_role_ends_and_its_jobs_count_as_lost(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch, role: Any
) -> None:
    """F37, PITFALLS 3.1 9, rule 8: alive without one of its parts it would only look alive."""
    run = role.run

    def run_and_crash(self: Any) -> None:
        wait = self.wait

        def wait_or_crash(timeout: float | None) -> None:
            wait(timeout)
            if crash:
                raise RuntimeError("on purpose")

        self.wait = wait_or_crash
        run(self)

    crash: list[bool] = []
    monkeypatch.setattr(role, "run", run_and_crash)
    worker = start_thread(shutdown_timeout=30.0)
    job = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    crash.append(True)
    for part in worker.runner._roles():
        part.wake()
    assert worker.join() == EXIT_CRASHED
    row = get_job(job.id)
    assert (row.status, row.attempts, row.lost_count) == ("ready", 1, 1)
