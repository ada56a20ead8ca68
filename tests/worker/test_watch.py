"""The watch for new jobs: sessions that take it, and workers that share one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries import watch as queries
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.upkeep import watch
from tests import tasks
from tests.factories import get_job, get_worker, make_job
from tests.helpers import WAIT_SECONDS, wait_until
from tests.worker import tasks as gate_tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker

Start = Callable[..., ThreadedWorker]
KEY = queries.key_of("test")


def take(connection: OwnConnection, *, seconds: float = 0, silent_seconds: float = 60) -> Any:
    send = partial(queries.send_take, watch=KEY, seconds=seconds, silent_seconds=silent_seconds)
    [[(is_taken,)]] = connection.round_trip([send])
    return is_taken


@pytest.fixture
def sessions() -> Any:
    made = [OwnConnection("default", f"watch-{number}") for number in range(2)]
    yield made
    for each in made:
        each.close()


@pytest.mark.django_db(transaction=True)
def test_a_session_waits_for_the_watch_without_an_error(sessions: Any) -> None:
    first, second = sessions
    assert [take(first), take(second), take(second, seconds=0.05)] == [True, False, False]
    first.round_trip([queries.send_leave])
    assert take(second)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_session_that_has_the_watch_is_given_it_again(sessions: Any) -> None:
    """An answer that is lost leaves nothing behind that nobody knows of."""
    first, second = sessions
    assert [take(first), take(first), take(second)] == [True, True, False]
    first.round_trip([queries.send_leave])
    assert take(second)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_server_takes_the_watch_from_a_session_that_is_silent(sessions: Any) -> None:
    """Its process is frozen, say."""
    first, second = sessions
    assert take(first, silent_seconds=1)
    assert wait_until(lambda: take(second, seconds=0.9))


@pytest.mark.django_db(transaction=True)
def test_a_session_that_has_left_the_watch_may_be_silent(sessions: Any) -> None:
    first, _ = sessions
    assert take(first, silent_seconds=1)
    first.round_trip([queries.send_leave])
    ask = "SELECT pg_catalog.current_setting('idle_session_timeout')"
    assert first.round_trip([lambda cursor: cursor.execute(ask)]) == [[("0",)]]


def test_groups_have_watches_of_their_own() -> None:
    keys = {queries.key_of(*group) for group in [(), ("a",), ("a", None), (["a"],), (["b"],)]}
    assert len(keys) == 5
    assert all(-(2**63) <= key < 2**63 for key in keys)


def advisory_locks(*, granted: bool = True) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = %s"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            [granted],
        )
        return int(cursor.fetchall()[0][0])


def advisory_waits() -> int:
    return advisory_locks(granted=False)


def watcher_of(start_thread: Start) -> tuple[ThreadedWorker, ThreadedWorker]:
    """Start two workers; return which is on watch, and the one that parks."""
    first, second = (start_thread(poll_interval=NEVER, name=f"test:{n}") for n in range(2))
    wait_until(lambda: listeners() == 1 and advisory_waits() == 1)
    return (first, second) if get_worker(first.id).listening else (second, first)


def listeners() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgjobs_worker WHERE listening AND ended_at IS NULL")
        return int(cursor.fetchall()[0][0])


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_of_several_idle_workers_one_listens_and_the_others_park(start_thread: Start) -> None:
    workers = [start_thread(poll_interval=NEVER) for _ in range(3)]
    wait_until(lambda: listeners() == 1 and advisory_waits() == 2)
    [watcher] = [worker for worker in workers if get_worker(worker.id).listening]
    watcher.close()
    # The server gives the watch to who waits for it.
    wait_until(lambda: listeners() == 1 and advisory_waits() == 1)
    job = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).status == "successful")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_batch_of_jobs_wakes_one_worker_after_the_other(start_thread: Start, gate: Gate) -> None:
    for _ in range(5):
        start_thread(poll_interval=NEVER, concurrency=1)
    wait_until(lambda: advisory_waits() == 4)
    for _ in range(5):
        gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered(5)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_with_a_share_used_up_leaves_the_queue_to_others(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wants jobs of its other queues, so it would never leave the watch because it is full."""
    monkeypatch.setattr(watch, "LONG_SECONDS", NEVER)
    for _ in range(4):
        start_thread(poll_interval=NEVER, concurrency=2, queue_slots={"default": 1})
    wait_until(lambda: advisory_waits() == 3)
    for _ in range(4):
        gate_tasks.wait_at_gate.enqueue()
        gate.wait_entered()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_that_holds_jobs_asks_for_the_watch_when_somebody_leaves(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have something to do, and some of them room for more."""
    monkeypatch.setattr(watch, "AGAIN_SECONDS", NEVER)
    for _ in range(3):
        start_thread(poll_interval=NEVER, concurrency=2)
    wait_until(lambda: advisory_waits() == 2)
    for _ in range(6):
        gate_tasks.wait_at_gate.enqueue()
        gate.wait_entered()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_parked_worker_hears_what_people_ask_of_it(start_thread: Start) -> None:
    workers = [start_thread(poll_interval=NEVER, lease=60.0) for _ in range(3)]
    wait_until(lambda: listeners() == 1 and advisory_waits() == 2)
    [parked, _] = [worker for worker in workers if not get_worker(worker.id).listening]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_worker SET stop_requested_at = now() WHERE id = %s", [parked.id]
        )
    assert parked.join() == 0


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_where_no_watch_can_be_had_a_worker_hears_of_new_jobs_all_the_same(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function is not there, say, or the role may not call it."""
    monkeypatch.setattr(queries, "send_take", lambda cursor, *a, **k: cursor.execute("SELECT 1/0"))
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    job = make_job()
    wait_until(lambda: get_job(job).status == "successful")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_pump_is_held_up_leaves_the_watch(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a trigger of the project, or a connection that is cut: others hear of the jobs then."""
    on_watch, other = watcher_of(start_thread)
    released = threading.Event()
    pump = on_watch.runner._connections["pump"]
    round_trip = pump.round_trip

    def wait_and_send(sends: Any) -> Any:
        released.wait(WAIT_SECONDS)
        return round_trip(sends)

    monkeypatch.setattr(pump, "round_trip", wait_and_send)
    try:
        job = tasks.add.enqueue(1, 2)
        wait_until(lambda: get_job(job.id).status == "successful", timeout=WAIT_SECONDS / 2)
        assert get_job(job.id).worker_ids == [other.runner.state.name]
    finally:
        released.set()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_that_may_lose_its_lease_leaves_the_watch(start_thread: Start) -> None:
    """Somebody has locked its row, or the server is full: it would claim nothing."""
    on_watch, other = watcher_of(start_thread)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_worker SET lease_expires_at = now() - interval '1 s', listening = FALSE"
            " WHERE id = %s",
            [on_watch.id],
        )
    on_watch.runner.state.danger_at = 0.0
    job = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).status == "successful", timeout=WAIT_SECONDS / 6)
    assert get_job(job.id).worker_ids == [other.runner.state.name]


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_was_refused_the_watch_does_not_keep_it(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a session stays if its statement ends with an error after all."""
    asked = []

    def take_and_fail(cursor: Any, *args: Any, **kwargs: Any) -> None:
        asked.append(KEY)
        cursor.execute(
            "SELECT pg_catalog.pg_try_advisory_lock($1::bigint),"
            " 1 OPERATOR(pg_catalog./) (pg_catalog.random() OPERATOR(pg_catalog.*) 0)::integer",
            [KEY],
        )

    monkeypatch.setattr(queries, "send_take", take_and_fail)
    start_thread(poll_interval=NEVER)
    wait_until(lambda: asked and listeners() == 1)
    wait_until(lambda: not advisory_locks(), timeout=WAIT_SECONDS / 6)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_jobs_that_a_worker_gives_back_wake_another(start_thread: Start, gate: Gate) -> None:
    busy = start_thread(poll_interval=NEVER, concurrency=1, shutdown_timeout=0.0)
    gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    start_thread(poll_interval=NEVER, concurrency=1)
    wait_until(lambda: listeners() == 1)
    busy.close()
    gate.wait_entered()
