"""A row whose lock somebody holds delays what is to be written to it, and nothing else.

The lock is that of a transaction of the project: `with transaction.atomic(): cancel(job)` and then
something slow, or `SELECT ... FOR UPDATE` in psql and a cup of coffee.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import transaction

from django_pgjobs import Task, cancel
from django_pgjobs.worker.upkeep import look
from tests import tasks
from tests.factories import (
    count_jobs,
    get_job,
    get_worker,
    make_jobs,
    make_running_job,
    make_worker,
)
from tests.helpers import wait_until
from tests.races.support import DjangoThread
from tests.worker import tasks as gate_tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Start = Callable[..., ThreadedWorker]
Hold = Callable[..., Any]
ADD = "tests.tasks.add"


@pytest.fixture
def hold(open_connection: Callable[..., psycopg.Connection]) -> Hold:
    """Hold the lock of a row as long as the block lasts: `with hold(job_id)`."""

    @contextlib.contextmanager
    def holding(row_id: int | str, table: str = "pgjobs_job_live") -> Iterator[psycopg.Connection]:
        other = open_connection(autocommit=False)
        found = other.execute(f"SELECT id FROM {table} WHERE id = %s FOR UPDATE", [row_id])
        assert found.fetchone()
        yield other
        other.commit()

    return holding


def wait_until_ran(count: int) -> None:
    wait_until(lambda: count_jobs(task_path=ADD, status="successful") == count)


@pytest.mark.parametrize(
    ("task", "status"),
    [
        (gate_tasks.wait_at_gate, "successful"),
        (gate_tasks.wait_at_gate_atomic, "successful"),
        (gate_tasks.wait_at_gate_and_fail, "failed"),
        (gate_tasks.wait_at_gate_and_snooze, "ready"),
    ],
    ids=lambda value: getattr(value, "module_path", value),
)
def test_a_running_job_whose_row_is_held_delays_its_own_outcome_and_no_other_job(
    start_thread: Start, hold: Hold, gate: Gate, task: Task, status: str
) -> None:
    start_thread()
    held = task.enqueue()
    gate.wait_entered()
    claim = get_job(held.id).claim
    with hold(held.id):
        gate.open()
        for number in range(1, 4):
            tasks.add.enqueue(1, 2)
            wait_until_ran(number)
        make_jobs(40, ADD)
        wait_until_ran(43)
        assert get_job(held.id).status == "running"
    wait_until(lambda: get_job(held.id).status == status)
    assert get_job(held.id).claim == claim + (status == "ready")


def test_several_held_rows_are_written_as_each_of_them_becomes_free(
    start_thread: Start, hold: Hold, gate: Gate
) -> None:
    start_thread(concurrency=3)
    first, second, third = (gate_tasks.wait_at_gate.enqueue([n]) for n in range(3))
    gate.wait_entered(3)
    with hold(first.id):
        with hold(second.id):
            gate.open()
            wait_until(lambda: get_job(third.id).status == "successful")
        wait_until(lambda: get_job(second.id).result == [1])
        assert get_job(first.id).status == "running"
    wait_until(lambda: get_job(first.id).result == [0])


def test_a_cancel_in_an_open_transaction_holds_up_nobody_and_arrives_after_it(
    start_thread: Start, hold: Hold, gate: Gate
) -> None:
    start_thread()
    running = gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()

    def cancel_slowly() -> None:
        with transaction.atomic():
            cancel(running)
            make_jobs(40, ADD, using="default")
            slow.wait()

    slow = gate.opened
    thread = DjangoThread(cancel_slowly)
    thread.wait_until_executed("pgjobs")
    for number in range(1, 4):
        tasks.add.enqueue(1, 2)
        wait_until_ran(number)
    assert get_job(running.id).cancel_requested_at is None
    gate.open()
    thread.result()
    wait_until(lambda: get_job(running.id).status in ("cancelled", "successful"))
    wait_until_ran(43)


def test_an_outcome_that_waits_for_a_lock_is_lost_only_if_the_job_was_taken_away(
    start_thread: Start, hold: Hold, gate: Gate
) -> None:
    start_thread()
    held = gate_tasks.wait_at_gate.enqueue([1])
    gate.wait_entered()
    with hold(held.id) as other:
        gate.open()
        tasks.add.enqueue(1, 2)
        wait_until_ran(1)
        other.execute("UPDATE pgjobs_job SET claim = 7 WHERE id = %s", [held.id])
    worker_state = wait_until(lambda: get_job(held.id).claim == 7)
    assert worker_state
    tasks.add.enqueue(1, 2)
    wait_until_ran(2)
    assert (get_job(held.id).status, get_job(held.id).result) == ("running", None)


def test_progress_of_a_job_whose_row_is_held_is_written_later(
    start_thread: Start, hold: Hold, gate: Gate
) -> None:
    start_thread()
    job = gate_tasks.report_when_told.enqueue()
    gate.wait_entered()
    with hold(job.id):
        gate.open()
        gate.wait_entered()  # it has reported
        make_jobs(40, ADD)
        wait_until_ran(40)
    wait_until(lambda: get_job(job.id).progress)
    assert (get_job(job.id).status, get_job(job.id).progress["done"]) == ("running", 1)


def test_a_worker_whose_own_row_is_held_runs_jobs(start_thread: Start, hold: Hold) -> None:
    """It cannot say that it listens, so it looks every second."""
    worker = start_thread(poll_interval=NEVER)
    with hold(worker.id, "pgjobs_worker"):
        for number in range(1, 4):
            tasks.add.enqueue(1, 2)
            wait_until_ran(number)
    wait_until(lambda: get_worker(worker.id).listening)


def test_a_worker_stops_in_time_though_the_row_of_a_job_is_held(
    start_thread: Start, hold: Hold, gate: Gate
) -> None:
    """The job is left to rescue, which is done when the row is free."""
    worker = start_thread(shutdown_timeout=0.5)
    held, running = gate_tasks.wait_at_gate.enqueue(), gate_tasks.spin.enqueue()
    gate.wait_entered()
    wait_until(lambda: get_job(running.id).status == "running")
    with hold(held.id):
        gate.open()
        worker.stop()
        assert get_worker(worker.id).ended_at is not None
        assert (get_job(held.id).status, get_job(running.id).status) == ("running", "ready")
        assert get_job(running.id).attempts == 0
    start_thread(lease=3.0, shutdown_timeout=0.1)
    wait_until(lambda: get_job(held.id).status == "successful")
    assert get_job(held.id).lost_count == 1


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_whoever_rescues_jobs_looks_for_them_at_once(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """No notification tells of them, and of several some may run a little later only."""
    # Neither a new worker nor one that has got the watch looks again of itself.
    for name in ("FIRST_GAP_SECONDS", "LISTEN_AFTER_SECONDS"):
        monkeypatch.setattr(look, name, NEVER)
    worker = start_thread(lease=1.0, poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    lost = make_worker(lease_seconds=-1)
    for _ in range(jobs):
        make_running_job(lost)
    wait_until(lambda: count_jobs(status="successful") == jobs)


def test_jobs_of_a_lost_worker_are_rescued_but_for_the_one_whose_row_is_held(
    start_thread: Start, hold: Hold
) -> None:
    lost = make_worker(lease_seconds=-1)
    rows = [make_running_job(lost) for _ in range(3)]
    with hold(rows[1].id):
        start_thread(lease=1.0)
        wait_until(lambda: count_jobs(status="successful") == 2)
        assert get_job(rows[1].id).status == "running"
    wait_until(lambda: count_jobs(status="successful") == 3)


def test_a_held_state_of_a_rate_limit_delays_the_jobs_that_have_one(
    start_thread: Start, open_connection: Callable[..., psycopg.Connection], settings: Any
) -> None:
    other = open_connection(autocommit=False)
    other.execute(
        "INSERT INTO pgjobs_rate_limit (name, count, period, burst) VALUES ('mail', 100, 1, 100)"
    )
    other.execute("INSERT INTO pgjobs_rate_state (key, next_free) VALUES ('mail', now())")
    other.commit()
    other.execute("SELECT FROM pgjobs_rate_state WHERE key = 'mail' FOR UPDATE")
    limited = make_jobs(2, ADD, rate_limit_keys="mail", rate_cost=1, priority=5)
    start_thread(poll_interval=0.2)
    make_jobs(20, ADD)
    # These are claimed by the statements that also take tokens.
    make_jobs(3, ADD, concurrency_key="shop:1")
    wait_until_ran(23)
    assert {get_job(job_id).status for job_id in limited} == {"ready"}
    other.commit()
    wait_until_ran(25)
