"""What people ask of a worker in its row: to be quiet, to go on, to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import pytest
from django.db import connection, transaction

from django_pgjobs.models import Stack
from django_pgjobs.queries import cursor as cursors
from django_pgjobs.queries import stacks, workers
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


# Of an advisory lock.
KEY = 4711


def let_questions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers that ask for orders get the answer when KEY is free, as it was before."""
    load = cursors.raw_statement

    def load_slow(name: str, *, schema: str | None = None) -> tuple[bytes, list[str]]:
        text, names = load(name, schema=schema)
        if name == "find_orders":
            wait = b"pg_catalog.pg_advisory_xact_lock_shared(%d)" % KEY
            text = b"SELECT orders.* FROM (%s) AS orders, %s" % (text, wait)
        return text, names

    monkeypatch.setattr(cursors, "raw_statement", load_slow)


def are_waiting(key: int | None = None, *, seconds: float = 0.0) -> bool:
    """Do sessions wait for an advisory lock, for so long already?"""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND objid = COALESCE(%s::oid, objid)"
            " AND waitstart <= clock_timestamp() - make_interval(secs => %s))",
            [key, seconds],
        )
        return bool(cursor.fetchall()[0][0])


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


def test_a_worker_that_waits_for_the_watch_again_and_again_obeys_what_it_is_asked(
    start_thread: Start,
) -> None:
    _, parked = watcher_of(partial(start_thread, lease=NEVER))
    ask(parked.id, STOP)
    assert parked.join() == 0


def test_a_worker_that_gets_the_watch_obeys_what_it_was_asked_while_it_waited_for_it(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears nothing meanwhile."""
    monkeypatch.setattr(watch, "PARK_SECONDS", WAIT_SECONDS)
    on_watch, parked = watcher_of(partial(start_thread, lease=NEVER))
    ask(parked.id, STOP)
    on_watch.stop()
    assert parked.join() == 0


def test_a_worker_that_was_quiet_obeys_a_resume_that_came_while_it_waited_for_the_watch(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody changed their mind: when it is told to be quiet it may wait once more."""
    monkeypatch.setattr(watch, "PARK_SECONDS", WAIT_SECONDS)
    on_watch, parked = watcher_of(partial(start_thread, lease=NEVER))
    ask(parked.id, QUIET)
    parked.runner.leases.wake()
    wait_until(lambda: parked.runner.state.quiet)
    ask(parked.id, RESUME)
    on_watch.stop()
    wait_until(lambda: not parked.runner.state.quiet)


@pytest.mark.slow
def test_a_worker_that_begins_to_hear_obeys_what_came_just_before(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears from the commit of LISTEN on, and a question sent with that sees no later rows."""
    monkeypatch.setattr(watch, "PARK_SECONDS", WAIT_SECONDS)
    on_watch, parked = watcher_of(partial(start_thread, lease=NEVER))
    # Not for as short as until its next look: what it is sent then asks before it hears, too.
    wait_until(lambda: are_waiting(seconds=1.0))
    let_questions_wait(monkeypatch)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [KEY])
        on_watch.stop()
        wait_until(lambda: are_waiting(KEY))
        ask(parked.id, STOP)
        cursor.execute("SELECT pg_advisory_unlock(%s)", [KEY])
    assert parked.join() == 0


@pytest.mark.slow
@pytest.mark.parametrize("change", [QUIET, STOP, ""], ids=["quiet", "stop", "stack"])
def test_a_worker_whose_session_broke_asks_what_it_has_missed(
    start_thread: Start, gate: Gate, change: str
) -> None:
    """All its slots are taken, so it asks for no watch."""
    worker = start_thread(concurrency=1, lease=NEVER)
    wait_until_listening(worker)
    before = get_worker(worker.id).heartbeat_at
    job = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    # The last for an hour.
    wait_until(lambda: get_worker(worker.id).heartbeat_at > before)
    with connection.cursor() as cursor:
        if change:
            ask(worker.id, change, notifies=False)
        else:
            stacks.ask_for_stack(cursor, int(job.id))
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'pgjobs upkeep' AND datname = current_database()"
        )
    state, answers = worker.runner.state, Stack.objects.filter(written_at__isnull=False)
    wait_until(lambda: state.quiet or state.stopping or answers.exists())
    gate.open()


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
