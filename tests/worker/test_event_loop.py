"""Async jobs: many at a time on one event loop, which none of them can end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgjobs import Task
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.process.exit_status import EXIT_RESTART
from django_pgjobs.worker.running import loop_watch, watchdog
from django_pgjobs.worker.running.async_slots import AsyncSlots
from django_pgjobs.worker.running.capacity import SlotCallbacks
from django_pgjobs.worker.running.outcome import Kind
from django_pgjobs.worker.running.stacks import stack_of
from django_pgjobs.worker.stillness import WAITS
from tests import tasks
from tests.factories import count_jobs, get_job
from tests.helpers import WAIT_SECONDS, wait_until
from tests.models import Effect
from tests.worker import nasty
from tests.worker import tasks as worker_tasks
from tests.worker.support import Gate, ThreadedWorker, make_attempt_of, make_options

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


@pytest.fixture(autouse=True)
def _no_meetings() -> None:
    worker_tasks.meetings.clear()


def statuses(*jobs: Any) -> set[str]:
    return {get_job(job.id).status for job in jobs}


@pytest.mark.slow
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
    wait_until(lambda: "has stood still" in caplog.text)
    slots.look()
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
        slots.look()
        wait_until(lambda: slots._watch._probed_at == WAITS)
    blocking = worker_tasks.block_the_loop.enqueue()
    gate.wait_entered()

    def said() -> list[str]:
        slots.look()
        return [each for each in caplog.messages if "has stood still" in each]

    assert f"job={blocking.id}" in wait_until(said)[0]
    assert len(said()) == 1
    # That alone lets no worker look dead.
    assert slots.mark == WAITS
    gate.open()
    wait_until(lambda: statuses(waiting, blocking) == {"successful"})


def test_a_job_that_only_happens_to_have_the_loop_is_not_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, now = loop_watch.LoopWatch(), 0.0
    monkeypatch.setattr(loop_watch, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(loop_watch, "stack_of_thread", lambda thread_id: "here")
    blocking, innocent, last = (make_attempt_of(number) for number in (1, 2, 3))

    def look(attempt: Attempt, at: float) -> None:
        nonlocal now
        now = at
        watch.look(attempt)
        watch.tell(0)

    look(blocking, 0.0)
    look(blocking, 4.9)
    look(innocent, 5.1)
    look(innocent, 5.2)
    assert caplog.messages == []
    # If no job blocks it for so long, but several together do, none is named.
    look(last, 6.0)
    look(last, 10.1)
    [said] = caplog.messages
    assert said.startswith("the event loop has stood still for 10 s")
    watch.note_move()
    look(last, 20.0)
    look(last, 25.1)
    assert caplog.messages[1].startswith("job=3 task=tests.tasks.add the event loop has stood")


def test_the_watchdog_names_a_job_that_blocks_the_loop_by_itself(
    start_thread: Start,
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looks so often that the job is named within about the time that it may block the loop."""
    assert watchdog.LOOK_SECONDS <= loop_watch.TOLD_SECONDS / 5
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(loop_watch, "TOLD_SECONDS", 0.05)
    start_thread()
    blocking = worker_tasks.block_the_loop.enqueue()
    gate.wait_entered()
    # On a busy machine the loop may have stood still before, for want of a processor.
    wait_until(lambda: f"job={blocking.id} task=" in caplog.text)
    assert "has stood still" in caplog.text
    gate.open()
    wait_until(lambda: statuses(blocking) == {"successful"})


@pytest.mark.slow
@pytest.mark.parametrize("blocking", [worker_tasks.block_the_loop, worker_tasks.block_behind])
def test_a_job_that_cannot_end_because_another_blocks_the_loop_is_not_to_blame(
    start_thread: Start, gate: Gate, caplog: pytest.LogCaptureFixture, blocking: Task[Any, Any]
) -> None:
    """The process is given up all the same: no timeout can be kept in it."""
    worker = start_thread(timeout_grace=0.1)
    innocent = worker_tasks.sleep_async.using(max_attempts=1).enqueue()
    wait_until(lambda: worker.runner.async_slots.running)
    blocking_job = blocking.enqueue()
    gate.wait_entered()
    worker.runner.watchdog.watch(worker.runner.state.held[int(innocent.id)], 0.0)
    assert worker.join() == EXIT_RESTART
    row = get_job(innocent.id)
    assert (row.status, row.attempts, row.lost_count, row.errors) == ("ready", 0, 0, [])
    said = f"job={innocent.id} task={worker_tasks.sleep_async.module_path} "
    if blocking is worker_tasks.block_behind:  # by a callback, of which nobody knows whose it is
        assert said + "is not reached on the event loop" in caplog.text
        return
    assert get_job(blocking_job.id).lost_count == 1
    assert f"job={blocking_job.id} task={blocking.module_path} does not end" in caplog.text
    assert said + "does not end" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [True, False])
def test_a_job_that_is_ending_while_another_blocks_the_loop_is_not_to_blame(
    start_thread: Start,
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    blocks: bool,
) -> None:
    """If that has had the loop for most of the grace; else it is."""
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.01)
    worker = start_thread(timeout_grace=3.0 if blocks else 0.1)
    ending = worker_tasks.clean_up_slowly.enqueue()
    wait_until(lambda: worker.runner.async_slots.running)
    attempt = worker.runner.state.held[int(ending.id)]
    # One that is interrupted before it has begun has nothing to clean up.
    wait_until(lambda: "in sleep" in stack_of(attempt))
    worker.runner.watchdog.watch(attempt, 0.0)
    to_blame = ending
    gate.wait_entered()
    if blocks:
        to_blame = worker_tasks.block_the_loop.enqueue()
        gate.wait_entered()
    assert worker.join() == EXIT_RESTART
    [said] = [each for each in caplog.messages if "this process is given up" in each]
    assert said.startswith(f"job={to_blame.id} ")


class Loop:
    """Async slots without a worker, and what they say."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.crashes: list[str] = []
        self.slots = AsyncSlots(
            make_options(),
            SlotCallbacks(
                on_start=lambda attempt: None,
                on_done=lambda attempt, outcome: self.kinds.append(outcome.kind),
                on_empty=lambda: None,
                on_crash=self.crashes.append,
            ),
        )

    def begin(self, number: int, task: Task[Any, Any]) -> None:
        """Begin a job."""
        self.slots.submit([make_attempt_of(number, task.module_path, args="[]")])
        wait_until(lambda: len(self.slots.running) == number)


def test_a_loop_that_ends_before_its_jobs_has_not_crashed(caplog: pytest.LogCaptureFixture) -> None:
    """What runs is given back, and what jobs have left behind ends as well."""
    loop = Loop()
    loop.begin(1, worker_tasks.sleep_async)
    loop.begin(2, worker_tasks.sleep_async)
    loop.slots.stop()
    assert loop.slots.join(WAIT_SECONDS)
    assert (loop.kinds, loop.crashes) == ([Kind.RELEASE] * 2, [])
    assert caplog.messages == []
    loop.slots.stop()
    loop.slots.look()


def test_a_loop_that_crashes_ends_its_jobs_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop()
    loop.begin(1, worker_tasks.sleep_async)
    loop.slots.submit([make_attempt_of(2, nasty.end_the_loop.module_path, args="[]")])
    assert loop.slots.join(WAIT_SECONDS)
    assert set(loop.kinds) == {Kind.RELEASE, Kind.DONE}
    assert loop.crashes == ["event loop"]
    assert caplog.text.count("the event loop crashed") == 1
    # Nothing begins any more, and nobody is the worse for asking.
    loop.slots.submit([make_attempt_of(3)])
    assert len(loop.slots.buffer) == 1


def test_a_job_on_a_loop_that_is_gone_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    """What a job leaves behind may end the loop again while that is being ended."""
    loop = Loop()
    loop.slots.submit([make_attempt_of(1, nasty.end_the_loop_twice.module_path, args="[]")])
    assert loop.slots.join(WAIT_SECONDS)
    loop.slots._attempts.clear()
    gc.collect()
    assert (loop.kinds, len(loop.crashes)) == ([], 2)
    assert {record.name for record in caplog.records if "crashed" not in record.message} <= {
        "asyncio"
    }


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
