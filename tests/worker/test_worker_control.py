"""What people ask of a worker in its row: to be quiet, to go on, to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import pytest
from django.db import connection, transaction

from django_pgjobs.queries import workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming import pump
from django_pgjobs.worker.process.exit_status import EXIT_DISMISSED
from django_pgjobs.worker.upkeep import watch
from tests import tasks as plain_tasks
from tests.factories import count_jobs, get_job, get_worker, make_jobs, make_worker
from tests.helpers import WAIT_SECONDS, wait_until
from tests.worker import tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker
from tests.worker.test_watch import watcher_of

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def ask(worker_id: int, change: str, *, notifies: bool = True) -> None:
    """Write into a worker's row: "quiet_requested_at = now()"; tell it, or leave it to its beat."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE pgjobs_worker SET {change} WHERE id = %s", [worker_id])
        if notifies:
            cursor.execute("NOTIFY pgjobs_control, 'workers'")


QUIET, RESUME = "quiet_requested_at = now()", "quiet_requested_at = NULL"
STOP = "stop_requested_at = now()"


def wait_until_listening(worker: ThreadedWorker) -> None:
    wait_until(lambda: worker.listens)


def test_a_quiet_worker_goes_on_with_what_it_runs_and_claims_nothing(
    start_thread: Start, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="django_pgjobs.worker")
    worker = start_thread(lease=NEVER)
    wait_until_listening(worker)
    running = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    ask(worker.id, QUIET)
    wait_until(lambda: worker.runner.state.quiet)
    waiting = plain_tasks.add.enqueue(1, 2)
    gate.open()
    wait_until(lambda: get_job(running.id).status == "successful")
    wait_until(lambda: not get_worker(worker.id).listening)
    assert (get_job(waiting.id).status, get_job(waiting.id).attempts) == ("ready", 0)
    assert get_worker(worker.id).ended_at is None
    ask(worker.id, RESUME)
    wait_until(lambda: get_job(waiting.id).status == "successful")
    assert "quiet   no new jobs: asked in the table" in caplog.text
    assert "resume  takes jobs again: asked in the table" in caplog.text
    assert worker.stop() == 0


@pytest.mark.slow
def test_what_a_worker_had_claimed_ahead_goes_back_when_it_becomes_quiet(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are to run it."""
    monkeypatch.setattr(pump, "HOARD_SECONDS", NEVER)
    worker = start_thread(concurrency=1, lease=NEVER)
    worker.runner.slots.mean_duration = 0.001
    with transaction.atomic():
        tasks.wait_at_gate.enqueue()
        make_jobs(5)
    gate.wait_entered()
    wait_until(lambda: count_jobs(status="running") == 6)
    ask(worker.id, QUIET)
    wait_until(lambda: count_jobs(status="ready", attempts=0) == 5)
    assert count_jobs(status="running") == 1


@pytest.mark.slow
def test_a_worker_that_is_asked_to_stop_does_as_after_term(start_thread: Start, gate: Gate) -> None:
    worker = start_thread(concurrency=1, lease=NEVER)
    wait_until_listening(worker)
    running = tasks.wait_at_gate.enqueue([1])
    gate.wait_entered()
    waiting = plain_tasks.add.enqueue(1, 2)
    ask(worker.id, STOP)
    wait_until(lambda: worker.runner.state.stopping)
    gate.open()
    assert worker.join() == 0
    assert get_job(running.id).result == [1]
    assert (get_job(waiting.id).status, get_job(waiting.id).attempts) == ("ready", 0)
    row = get_worker(worker.id)
    assert row.ended_at is not None
    assert not row.lost


def test_a_worker_that_gets_the_watch_obeys_what_it_was_asked_while_it_waited_for_it(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears nothing meanwhile."""
    monkeypatch.setattr(watch, "PARK_SECONDS", WAIT_SECONDS)
    on_watch, parked = watcher_of(partial(start_thread, lease=NEVER))
    ask(parked.id, STOP)
    on_watch.stop()
    assert parked.join() == 0


@pytest.mark.parametrize("change", [QUIET, STOP], ids=["quiet", "stop"])
def test_without_a_notification_the_next_heartbeat_brings_it(
    start_thread: Start, change: str
) -> None:
    worker = start_thread(lease=1.0, listen=False, poll_interval=0.1)
    ask(worker.id, change, notifies=False)
    state = worker.runner.state
    wait_until(lambda: state.quiet or state.stopping)
    if change == STOP:
        assert worker.join() == 0


def test_a_notification_about_workers_gives_no_job_back(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others read their rows, and that is all."""
    monkeypatch.setattr(pump, "HOARD_SECONDS", NEVER)
    worker = start_thread(concurrency=1, lease=NEVER)
    worker.runner.slots.mean_duration = 0.001
    wait_until_listening(worker)
    with transaction.atomic():
        tasks.wait_at_gate.enqueue()
        make_jobs(5)
    gate.wait_entered()
    wait_until(lambda: count_jobs(status="running") == 6)
    before = get_worker(worker.id).heartbeat_at
    ask(make_worker("other:1"), QUIET)
    wait_until(lambda: get_worker(worker.id).heartbeat_at > before)
    assert not worker.runner.state.quiet
    assert count_jobs(status="running") == 6


@pytest.mark.slow
def test_a_quiet_worker_that_loses_its_lease_stays_quiet(start_thread: Start) -> None:
    worker = start_thread(lease=NEVER)
    wait_until_listening(worker)
    ask(worker.id, QUIET)
    wait_until(lambda: worker.runner.state.quiet)
    old = worker.id
    ask(old, "lease_expires_at = now() - interval '1 s'")
    wait_until(lambda: worker.id != old)
    assert get_worker(worker.id).quiet_requested_at is not None
    job = plain_tasks.add.enqueue(1, 2)
    ask(worker.id, RESUME)
    wait_until(lambda: get_job(job.id).status == "successful")


def test_a_child_tells_its_supervisor_that_it_is_not_to_be_replaced(
    start_thread: Start,
) -> None:
    worker = start_thread(lease=NEVER, is_child=True)
    wait_until_listening(worker)
    ask(worker.id, STOP)
    assert worker.join() == EXIT_DISMISSED


def test_a_renewal_brings_what_is_asked(own: OwnConnection) -> None:
    worker = make_worker()
    with own.cursor() as cursor:
        renewal = workers.renew_lease(cursor, worker, lease=60)
        assert renewal is not None and not (renewal.is_quiet or renewal.is_stopping)
        ask(worker, f"{QUIET}, {STOP}")
        renewal = workers.renew_lease(cursor, worker, lease=60)
    assert renewal is not None and renewal.is_quiet and renewal.is_stopping
