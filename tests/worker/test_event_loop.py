"""Async jobs: many at a time on one event loop, which none of them can end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_pgjobs.worker.running import loop_watch
from django_pgjobs.worker.stillness import WAITS
from tests import tasks
from tests.factories import count_jobs, get_job
from tests.helpers import wait_until
from tests.models import Effect
from tests.worker import nasty
from tests.worker import tasks as worker_tasks
from tests.worker.support import Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


@pytest.fixture(autouse=True)
def _no_meetings() -> None:
    worker_tasks.meetings.clear()


def statuses(*jobs: Any) -> set[str]:
    return {get_job(job.id).status for job in jobs}


def test_far_more_async_jobs_run_at_once_than_there_are_slots(drain: Start) -> None:
    """S1.20, S4.12."""
    jobs = [worker_tasks.meet.using(timeout=15).enqueue("all", 80) for _ in range(80)]
    drain(concurrency=1, async_concurrency=100)
    assert statuses(*jobs) == {"successful"}


def test_no_more_async_jobs_run_at_once_than_allowed(start_thread: Start, gate: Gate) -> None:
    jobs = [worker_tasks.wait_at_gate_async.enqueue() for _ in range(5)]
    start_thread(async_concurrency=3)
    gate.wait_entered(3)
    assert not gate.entered.acquire(timeout=0.2)
    gate.open()
    wait_until(lambda: statuses(*jobs) == {"successful"})


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt", "CancelledError"])
def test_what_ends_other_loops_ends_one_job_here(
    start_thread: Start, gate: Gate, name: str
) -> None:
    """The job beside it goes on."""
    beside = worker_tasks.wait_at_gate_async.enqueue([1])
    start_thread()
    gate.wait_entered()
    bad = nasty.end_with_async.enqueue(name)
    wait_until(lambda: get_job(bad.id).status == "failed")
    gate.open()
    wait_until(lambda: get_job(beside.id).status == "successful")
    after = tasks.add_async.enqueue(1, 2)
    wait_until(lambda: get_job(after.id).status == "successful")


@pytest.mark.slow
def test_a_blocked_loop_gets_no_more_jobs(
    start_thread: Start,
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are claimed once at most, and go back to whoever can run them."""
    worker = start_thread()
    blocking = worker_tasks.block_the_loop.enqueue()
    gate.wait_entered()
    job = tasks.add_async.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).claim and get_job(job.id).status == "ready")
    claim = get_job(job.id).claim
    slots = worker.runner.async_slots
    monkeypatch.setattr(loop_watch, "TOLD_SECONDS", 1.0)
    # Threads get theirs, in more turns than one.
    for _ in range(3):
        beside = tasks.add.enqueue(1, 2)
        wait_until(lambda: get_job(beside.id).status == "successful")  # noqa: B023
    assert (get_job(job.id).claim, get_job(job.id).status) == (claim, "ready")
    wait_until(lambda: slots._watch.seconds > loop_watch.TOLD_SECONDS)
    for _ in range(2):
        slots.tell_if_blocked()
    [said] = [each for each in caplog.messages if "has stood still" in each]
    assert f"job={blocking.id}" in said
    assert f"task={worker_tasks.block_the_loop.module_path}" in said
    assert "in block_the_loop" in said
    gate.open()
    wait_until(lambda: statuses(blocking, job) == {"successful"})
    assert slots.mark == WAITS


def test_a_job_that_blocks_the_loop_is_named_though_no_other_waits(
    start_thread: Start,
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_watch, "TOLD_SECONDS", 0.05)
    slots = start_thread().runner.async_slots
    waiting = worker_tasks.wait_at_gate_async.enqueue()
    gate.wait_entered()
    for _ in range(3):
        # It moves, and has nothing to answer by then.
        slots.tell_if_blocked()
        wait_until(lambda: slots._watch._probed_at == WAITS)
    blocking = worker_tasks.block_the_loop.enqueue()
    gate.wait_entered()

    def said() -> list[str]:
        slots.tell_if_blocked()
        return [each for each in caplog.messages if "has stood still" in each]

    assert f"job={blocking.id}" in wait_until(said)[0]
    assert len(said()) == 1
    # That alone lets no worker look dead.
    assert slots.mark == WAITS
    gate.open()
    wait_until(lambda: statuses(waiting, blocking) == {"successful"})


def test_a_job_that_cancels_itself_fails(drain: Start) -> None:
    job, after = worker_tasks.cancel_itself.enqueue(), tasks.add_async.enqueue(1, 2)
    drain()
    assert get_job(job.id).errors[0]["exception_class"] == "asyncio.exceptions.CancelledError"
    assert get_job(after.id).status == "successful"


def test_what_a_job_leaves_on_the_loop_harms_no_other(drain: Start) -> None:
    jobs = [worker_tasks.leave_a_task_behind.enqueue(), tasks.add_async.enqueue(1, 2)]
    drain()
    assert statuses(*jobs) == {"successful"}


def test_each_async_job_knows_itself(drain: Start) -> None:
    """current_job() is right though the jobs take turns in one thread."""
    jobs = [worker_tasks.describe_job_async.using(queue_name=f"q{n}").enqueue() for n in range(5)]
    drain()
    for number, job in enumerate(jobs):
        assert get_job(job.id).result == [int(job.id), int(job.id), 1, f"q{number}"]


def test_async_jobs_use_the_orm(drain: Start) -> None:
    jobs = [worker_tasks.use_orm_async.enqueue(f"key {n}") for n in range(5)]
    drain()
    assert [get_job(job.id).result for job in jobs] == [1] * 5
    assert Effect.objects.count() == 5


def test_async_jobs_enqueue_jobs(drain: Start) -> None:
    first = worker_tasks.enqueue_async.enqueue(21)
    drain()
    result = worker_tasks.enqueue_async.get_result(first.id)
    assert get_job(result.return_value).result == 42


def test_async_jobs_take_a_context(drain: Start) -> None:
    job = worker_tasks.describe_context_async.enqueue([7])
    drain()
    assert get_job(job.id).result == [1, job.id, [7]]


def test_async_jobs_are_retried_like_others(drain: Start) -> None:
    job = tasks.fail_async.enqueue("x")
    drain()
    row = get_job(job.id)
    assert (row.status, row.attempts) == ("failed", 3)
    assert [entry["message"] for entry in row.errors] == ["x"] * 3
    assert "in fail_async" in row.errors[0]["traceback"]


def test_at_shutdown_unfinished_async_jobs_go_back_uncounted(
    start_thread: Start, gate: Gate
) -> None:
    """S4.15."""
    jobs = [worker_tasks.sleep_async.enqueue() for _ in range(3)]
    worker = start_thread(shutdown_timeout=0.1)
    wait_until(lambda: count_jobs(status="running") == 3)
    assert worker.stop() == 0
    rows = [get_job(job.id) for job in jobs]
    assert {(row.status, row.attempts, row.note) for row in rows} == {
        ("ready", 0, "released at shutdown")
    }
