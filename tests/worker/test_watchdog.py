"""Timeouts and interrupts: they end a task for real, once, and never the job after it."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable

import pytest
from psycopg.pq import TransactionStatus

from django_pgjobs import JobTimeout, Task, cancel
from django_pgjobs.compat import TaskResult, task_started
from django_pgjobs.exceptions import JobCancelled, JobInterrupt, JobReleased, LeaseLost
from django_pgjobs.queries.jobs import FREE_INTERRUPTIONS
from django_pgjobs.worker import attempt as attempt_module
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.process.exit_status import EXIT_RESTART
from django_pgjobs.worker.running import watchdog
from django_pgjobs.worker.running.calling import run_in_thread
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests import tasks as plain_tasks
from tests.factories import get_job
from tests.helpers import WAIT_SECONDS, wait_until
from tests.worker import tasks
from tests.worker.support import Gate, ThreadedWorker, make_attempt_of, make_options

Start = Callable[..., ThreadedWorker]


def name(value: Task) -> str:
    """Name a parameter."""
    return value.name


@pytest.mark.parametrize("task", [tasks.spin, tasks.spin_async, tasks.sleep_async], ids=name)
def test_a_timeout_ends_the_attempt_and_the_job_is_tried_again(
    start_thread: Start, task: Task
) -> None:
    """S4.22: a timed-out job is retried; the worker lives on."""
    start_thread(concurrency=1)
    job = task.using(timeout=0.2, max_attempts=2).enqueue()
    wait_until(lambda: get_job(job.id).status == "failed")
    row = get_job(job.id)
    assert [entry["exception_class"] for entry in row.errors] == [
        "django_pgjobs.exceptions.JobTimeout",
        "django_pgjobs.exceptions.JobTimeout",
    ]
    assert {entry["message"] for entry in row.errors} == {"the attempt took longer than 0.2 s."}
    assert row.attempts == 2
    after = plain_tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(after.id).status == "successful")


def test_the_timeout_of_the_task_holds_where_the_job_has_none(start_thread: Start) -> None:
    start_thread()
    job = tasks.spin_briefly.enqueue()
    wait_until(lambda: get_job(job.id).status == "failed")
    assert get_job(job.id).errors[0]["exception_class"].endswith(".JobTimeout")


def test_a_job_that_ends_in_time_is_left_alone(start_thread: Start) -> None:
    start_thread(concurrency=1)
    jobs = [plain_tasks.sleep_for.using(timeout=5.0).enqueue(0.01) for _ in range(5)]
    wait_until(lambda: {get_job(job.id).status for job in jobs} == {"successful"})


def test_an_attempt_that_has_ended_is_not_kept_until_its_deadline(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an hour of short jobs, which may take an hour each, these would be millions."""
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.01)
    start_thread(concurrency=1)
    job = plain_tasks.add.using(timeout=3600.0).enqueue(1, 2)
    # The slot knows of the job that it ran last.
    last = plain_tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(last.id).status == "successful")

    def kept() -> list[Attempt]:
        return [
            each for each in gc.get_objects() if type(each) is Attempt and each.id == int(job.id)
        ]

    wait_until(lambda: not kept())


def test_a_timeout_passes_except_exception(start_thread: Start) -> None:
    """It is no Exception, so that a task which catches everything does end."""
    start_thread()
    job = tasks.spin_catching_exceptions.using(timeout=0.2).enqueue()
    wait_until(lambda: get_job(job.id).status == "failed")
    assert not issubclass(JobTimeout, Exception)


def test_the_traceback_of_a_timeout_shows_where_the_task_was(start_thread: Start) -> None:
    start_thread()
    job = tasks.spin.using(timeout=0.2, max_attempts=1).enqueue()
    wait_until(lambda: get_job(job.id).status == "failed")
    assert "in spin" in get_job(job.id).errors[0]["traceback"]


@pytest.mark.parametrize("task", [tasks.spin, tasks.spin_async, tasks.sleep_async], ids=name)
@pytest.mark.parametrize("listen", [True, False], ids=["listening", "polling"])
def test_cancelling_a_running_job_ends_it(start_thread: Start, task: Task, listen: bool) -> None:
    start_thread(listen=listen, poll_interval=0.1)
    job = task.enqueue()
    wait_until(lambda: get_job(job.id).status == "running")
    assert cancel(job)
    wait_until(lambda: get_job(job.id).status == "cancelled")
    assert get_job(job.id).errors == []


def test_an_async_job_that_is_cancelled_before_it_begins_never_runs(
    start_thread: Start, gate: Gate
) -> None:
    """Else it would run on beside a row that says that it was cancelled, and nothing ends it."""

    def cancel_first(sender: object, task_result: TaskResult, **kwargs: object) -> None:
        cancel(task_result)
        wait_until(lambda: held[int(task_result.id)].interrupted_by)

    worker = start_thread()
    held = worker.runner.state.held
    task_started.connect(cancel_first)
    try:
        job = tasks.wait_at_gate_async.enqueue()
        wait_until(lambda: get_job(job.id).status == "cancelled")
    finally:
        task_started.disconnect(cancel_first)
    assert worker.stop() == 0
    assert not gate.entered.acquire(blocking=False)


def test_a_job_that_ends_although_it_was_cancelled_is_what_it_came_to(
    start_thread: Start, gate: Gate
) -> None:
    """A task may finish its work instead: it catches JobCancelled and returns."""
    start_thread()
    job = tasks.catch_cancel.enqueue()
    gate.wait_entered()
    assert cancel(job)
    wait_until(lambda: get_job(job.id).status != "running")
    assert (get_job(job.id).status, get_job(job.id).result) == ("successful", ["caught"])


@pytest.mark.slow
def test_an_attempt_that_does_not_end_is_reported_and_the_process_given_up(
    start_thread: Start, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """The child is replaced; its other jobs go back first, uncounted."""
    worker = start_thread(timeout_grace=0.1, concurrency=2, shutdown_timeout=30.0)
    other = plain_tasks.sleep_for.enqueue(60)
    stuck = tasks.ignore_interrupts.using(timeout=0.1).enqueue()
    gate.wait_entered()
    assert worker.join() == EXIT_RESTART
    assert f"job={stuck.id} task=tests.worker.tasks.ignore_interrupts does not end" in caplog.text
    row = get_job(stuck.id)
    assert (row.status, row.attempts) == ("ready", 1)
    assert row.errors[0]["exception_class"].endswith(".JobTimeout")
    assert (get_job(other.id).status, get_job(other.id).attempts) == ("ready", 0)


@pytest.mark.slow
@pytest.mark.parametrize("task", [tasks.ignore_interrupts, tasks.block_the_loop], ids=name)
def test_the_late_end_of_a_stuck_attempt_changes_nothing_and_is_not_told(
    start_thread: Start, gate: Gate, caplog: pytest.LogCaptureFixture, task: Task
) -> None:
    """An attempt ends once: its end was the timeout."""
    caplog.set_level("INFO", logger="django_pgjobs")
    worker = start_thread(timeout_grace=0.1)
    stuck = task.using(timeout=0.1).enqueue()
    gate.wait_entered()
    worker.join()
    before = get_job(stuck.id)
    gate.open()
    assert worker.runner.slots.join(WAIT_SECONDS)
    assert worker.runner.async_slots.join(WAIT_SECONDS)
    assert vars(get_job(stuck.id)) == vars(before)
    told = [each for each in caplog.messages if f" #{stuck.id} " in each]
    assert [each.split()[0] for each in told] == ["start", "RETRY"]
    assert "not written" not in caplog.text


def run_in_own_thread(attempt: Attempt) -> tuple[list[Outcome], list[BaseException]]:
    """Run an attempt in a thread; return its outcome, and what hit the thread after it."""
    outcomes: list[Outcome] = []
    late: list[BaseException] = []

    def run() -> None:
        try:
            outcomes.append(run_in_thread(attempt, make_options()))
            for _ in range(1_000):  # the bytecodes of the next job
                pass
        except BaseException as error:
            late.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcomes, late


def is_in(function: str, thread_id: int) -> bool:
    """Return whether a thread is executing, or blocked in, a function of this name."""
    frame = sys._current_frames().get(thread_id)
    return frame is not None and frame.f_code.co_name == function


def test_an_interrupt_that_comes_as_the_task_returns_never_hits_the_next_job(
    monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """The interrupt is under way when the attempt ends, and is called back."""
    raise_in_thread = attempt_module._raise_in_thread

    def raise_late(thread_id: int, reason: object) -> None:
        if isinstance(reason, type):
            gate.open()
            wait_until(lambda: is_in("disarm", thread_id))
        raise_in_thread(thread_id, reason)

    monkeypatch.setattr(attempt_module, "_raise_in_thread", raise_late)
    attempt = make_attempt_of(1, "tests.worker.tasks.wait_at_gate", args="[]")
    watchdog = threading.Thread(target=lambda: (gate.wait_entered(), attempt.interrupt(JobTimeout)))
    watchdog.start()
    outcomes, late = run_in_own_thread(attempt)
    watchdog.join()
    assert late == []
    assert [outcome.kind for outcome in outcomes] == [Kind.DONE]


def test_an_interrupt_that_comes_after_the_task_returned_leaves_its_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disarm = Attempt.disarm
    late = [JobTimeout()]

    def disarm_late(attempt: Attempt) -> None:
        if late:
            raise late.pop()
        disarm(attempt)

    monkeypatch.setattr(Attempt, "disarm", disarm_late)
    attempt = make_attempt_of(1, "tests.tasks.add")
    outcome = run_in_thread(attempt, make_options())
    assert (outcome.kind, outcome.result) == (Kind.DONE, "3")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (JobTimeout, Kind.RETRY),
        (JobCancelled, Kind.CANCEL),
        (JobReleased, Kind.RELEASE),
        (LeaseLost, Kind.RELEASE),
    ],
)
def test_an_interrupt_before_the_task_begins_keeps_it_from_beginning(
    reason: type[JobInterrupt], kind: Kind
) -> None:
    attempt = make_attempt_of(1, "tests.worker.tasks.never_called", args="[]")
    assert attempt.interrupt(reason)
    assert run_in_thread(attempt, make_options()).kind is kind


@pytest.mark.parametrize(
    ("interruptions", "attempts", "kind"),
    [
        (FREE_INTERRUPTIONS - 1, 2, Kind.RELEASE),
        (FREE_INTERRUPTIONS, 1, Kind.RELEASE),
        (FREE_INTERRUPTIONS, 2, Kind.FAIL),
        (FREE_INTERRUPTIONS + 5, 2, Kind.FAIL),
    ],
)
@pytest.mark.parametrize("reason", [JobReleased, LeaseLost])
def test_an_interruption_that_is_not_free_and_uses_up_the_last_attempt_is_its_end(
    reason: type[JobInterrupt], interruptions: int, attempts: int, kind: Kind
) -> None:
    attempt = make_attempt_of(
        1,
        "tests.worker.tasks.never_called",
        args="[]",
        interruptions=interruptions,
        attempts=attempts,
        max_attempts=2,
    )
    attempt.interrupt(reason)
    outcome = run_in_thread(attempt, make_options())
    assert outcome.kind is kind
    assert outcome.interrupted


class BusySession:
    """A connection of Django's whose statement goes on until it is cancelled."""

    vendor = "postgresql"

    def __init__(self) -> None:
        self.connection = self.pgconn = self
        self.transaction_status = TransactionStatus.ACTIVE
        self.asked, self.may_end = threading.Event(), threading.Event()

    def cancel_safe(self, *, timeout: float) -> None:
        self.asked.set()
        assert self.may_end.wait(10)
        self.transaction_status = TransactionStatus.INTRANS


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> BusySession:
    """The only connection of an attempt's thread."""
    session = BusySession()
    monkeypatch.setattr(attempt_module, "ConnectionsOfThread", lambda: [session])
    return session


def test_no_statement_of_the_next_job_can_be_cancelled(session: BusySession) -> None:
    """An attempt does not end before the server has taken the request to cancel."""
    attempt = make_attempt_of(1)
    attempt.arm()
    canceller = threading.Thread(target=attempt.cancel_statement)
    canceller.start()
    assert session.asked.wait(10)
    ending = threading.Thread(target=attempt.disarm)
    ending.start()
    wait_until(lambda: is_in("disarm", ending.ident or 0))
    assert ending.is_alive()
    session.may_end.set()
    canceller.join()
    ending.join()
    session.transaction_status = TransactionStatus.ACTIVE  # by the next job
    assert not attempt.cancel_statement()


def test_a_session_that_runs_nothing_is_left_alone(session: BusySession) -> None:
    attempt = make_attempt_of(1)
    assert not attempt.cancel_statement()
    attempt.arm()
    session.transaction_status = TransactionStatus.INTRANS
    assert not attempt.cancel_statement()
    session.transaction_status = TransactionStatus.ACTIVE
    session.may_end.set()
    assert attempt.cancel_statement()


def test_an_attempt_is_interrupted_once_only() -> None:
    attempt = make_attempt_of(1)
    assert attempt.interrupt(JobTimeout)
    assert not attempt.interrupt(JobCancelled)
    assert attempt.interrupted_by is JobTimeout
    assert attempt.cancelling
