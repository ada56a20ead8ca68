"""The end of a worker: in good order, or because a part of it is gone; no job is lost by it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.models import Statistic
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.jobs import FREE_INTERRUPTIONS
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.process import worker_process as runner_module
from django_pgjobs.worker.process.exit_status import (
    EXIT_CRASHED,
    EXIT_INTERRUPTED,
    EXIT_QUIT,
    EXIT_RESTART,
)
from django_pgjobs.worker.process.leases import LeaseKeeper
from django_pgjobs.worker.process.pruner import Pruner
from django_pgjobs.worker.process.worker_process import WorkerProcess
from django_pgjobs.worker.running.announcer import Announcer
from django_pgjobs.worker.running.outcome import AT_SHUTDOWN
from django_pgjobs.worker.running.watchdog import Watchdog
from django_pgjobs.worker.upkeep.upkeep import Upkeep
from tests import tasks as plain_tasks
from tests.factories import count_jobs, get_job, get_worker, make_jobs
from tests.helpers import wait_until
from tests.worker import tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def set_interruptions(number: int) -> None:
    """Let all jobs have been interrupted that often."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET interruptions = %s", [number])


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


@pytest.mark.slow
def test_a_worker_that_stops_begins_nothing_of_a_claim_under_way(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.15: the answer comes while it waits for what runs."""
    worker = start_thread(concurrency=2)
    tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    # No claim is under way any more.
    wait_until(lambda: get_worker(worker.id).listening)
    round_trip, wait = OwnConnection.round_trip, WorkerProcess._wait_until_empty
    waits = threading.Event()

    def stop_before_the_answer(self: OwnConnection, sends: Any) -> Any:
        answers = round_trip(self, sends)
        if self.role == "pump" and not waits.is_set():
            worker.runner.ask_to_stop("test")
            assert waits.wait(15)
        return answers

    def note_wait(self: WorkerProcess, timeout: float) -> bool:
        waits.set()
        return wait(self, timeout)

    monkeypatch.setattr(OwnConnection, "round_trip", stop_before_the_answer)
    monkeypatch.setattr(WorkerProcess, "_wait_until_empty", note_wait)
    job = plain_tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).note == AT_SHUTDOWN)
    assert (get_job(job.id).status, get_job(job.id).attempts) == ("ready", 0)
    gate.open()
    assert worker.join() == 0


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


@pytest.mark.parametrize("task", [tasks.wait_at_gate, tasks.wait_at_gate_async])
def test_more_interruptions_than_are_free_end_a_job_that_has_no_attempt_left(
    start_thread: Start, gate: Gate, task: Any
) -> None:
    """It fails when it is interrupted and not when it is claimed the next time."""
    last = task.using(max_attempts=1).enqueue()
    other = task.using(max_attempts=2).enqueue()
    set_interruptions(FREE_INTERRUPTIONS)
    worker = start_thread(shutdown_timeout=0.1)
    gate.wait_entered(2)  # what is claimed and has not begun goes back uncounted
    assert worker.stop() == 0
    row = get_job(last.id)
    assert (row.status, row.attempts, row.note) == ("failed", 1, "released at shutdown")
    assert [entry["exception_class"] for entry in row.errors] == [
        "django_pgjobs.exceptions.WorkerLost"
    ]
    assert "10 interruptions are free" in row.errors[0]["message"]
    row = get_job(other.id)
    assert (row.status, row.attempts, row.interruptions) == ("ready", 1, FREE_INTERRUPTIONS + 1)


def test_one_that_does_not_end_before_its_worker_fails_as_well(
    start_thread: Start, gate: Gate
) -> None:
    job = tasks.ignore_interrupts.using(max_attempts=1).enqueue()
    set_interruptions(FREE_INTERRUPTIONS)
    worker = start_thread(shutdown_timeout=60.0)
    gate.wait_entered()
    worker.send(signal.SIGTERM)
    wait_until(lambda: worker.runner.state.stopping)
    worker.send(signal.SIGTERM)
    assert worker.join() == EXIT_INTERRUPTED
    assert (get_job(job.id).status, get_job(job.id).attempts) == ("failed", 1)


@pytest.mark.slow
def test_the_log_tells_what_became_of_a_job_that_does_not_end(
    start_thread: Start,
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread says nothing any more, and one that fails for good is to be an ERROR."""
    monkeypatch.setattr(runner_module, "LAST_SECONDS", 0.5)
    caplog.set_level("INFO", "django_pgjobs.worker")
    last = tasks.ignore_interrupts.using(max_attempts=1).enqueue()
    set_interruptions(FREE_INTERRUPTIONS)
    other = tasks.ignore_interrupts.enqueue()
    worker = start_thread(shutdown_timeout=0.1)
    gate.wait_entered(2)
    assert worker.stop() == 0
    said = {
        record.pgjobs["job"]: (record.levelname, record.pgjobs["event"], record.pgjobs["ran"] > 0)
        for record in caplog.records
        if getattr(record, "pgjobs", {}).get("event", "start") != "start"
    }
    assert said == {int(last.id): ("ERROR", "FAIL", True), int(other.id): ("INFO", "release", True)}
    gate.open()


@pytest.mark.slow
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


@pytest.mark.slow
def test_of_two_workers_the_one_that_leaves_is_gone(start_thread: Start) -> None:
    """The tests' own workers: the other one would be taken for it, and this one would linger."""
    leaving, staying = start_thread(), start_thread(name="test:2")
    leaving.send(signal.SIGQUIT)
    assert leaving.join() == EXIT_QUIT
    assert leaving.left_at_once
    assert staying.is_running and not staying.left_at_once
    assert staying.stop() == 0


def test_two_signals_that_arrive_together_are_a_first_and_a_second(
    start_thread: Start, gate: Gate
) -> None:
    """The main thread may have waited for the interpreter's lock meanwhile."""
    worker = start_thread(shutdown_timeout=60.0)
    job = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    worker.send(signal.SIGTERM, signal.SIGINT)
    assert worker.join() == EXIT_INTERRUPTED
    assert (get_job(job.id).status, get_job(job.id).attempts) == ("ready", 0)


def test_a_quiet_worker_claims_nothing_and_goes_on(start_thread: Start, gate: Gate) -> None:
    """SIGUSR1."""
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


@pytest.mark.slow
def test_an_idle_worker_that_becomes_quiet_hears_of_no_more_jobs(start_thread: Start) -> None:
    """Else it would keep the watch, and enqueues would notify it, until one of them does."""
    quiet = start_thread(poll_interval=NEVER, lease=NEVER)
    wait_until(lambda: get_worker(quiet.id).listening)
    # Nothing wakes it for an hour, as after a while without jobs.
    look = quiet.runner.upkeep._duties.look
    look.rest()
    wait_until(lambda: look.due_at(0.0) > time.monotonic() + NEVER / 2)
    quiet.send(signal.SIGUSR1)
    wait_until(lambda: not get_worker(quiet.id).listening)
    other = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(other.id).listening)


@pytest.mark.parametrize(
    "role",
    [Pump, LeaseKeeper, Upkeep, Watchdog, Announcer, Pruner],
    ids=lambda role: role.__name__,
)
def test_a_worker_that_lost_a_role_ends_and_its_jobs_count_as_lost(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch, role: Any
) -> None:
    """Alive without one of its parts it would only look alive."""
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
    worker.wake()
    assert worker.join() == EXIT_CRASHED
    row = get_job(job.id)
    assert (row.status, row.attempts, row.lost_count) == ("ready", 1, 1)
    # The loss is written after it, by the same process.
    assert [each.lost for each in Statistic.objects.filter(enqueued=0)] == [1]


@pytest.mark.slow
def test_an_end_that_stands_still_is_cut_off(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody keeps what the log needs, say; what runs is given back, as far as that works."""
    may_log = threading.Event()
    monkeypatch.setattr(runner_module, "log_stop", lambda *_: may_log.wait(15))
    monkeypatch.setattr(runner_module, "LAST_SECONDS", 0.1)
    worker = start_thread(shutdown_timeout=0.1)
    job = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    worker.runner.ask_to_stop("test")
    wait_until(lambda: worker.left_at_once)
    assert worker.exit_code == EXIT_RESTART
    row = get_job(job.id)
    assert (row.status, row.interruptions, row.lost_count) == ("ready", 1, 0)
    may_log.set()
