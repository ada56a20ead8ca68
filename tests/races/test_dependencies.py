"""Predecessors that finish at the same time as each other, or as the enqueue of who waits."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_pgjobs import cancel
from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests.factories import get_job, make_running_job, make_worker
from tests.helpers import backend_pid, connect, wait_until
from tests.models import Effect
from tests.races.support import (
    DjangoThread,
    last_query,
    open_transaction,
    wait_until_role_is_blocked,
)
from tests.test_dependencies import CANCELLED, FREE, HELD, WAITING, edges, enqueue_after, state
from tests.worker.support import make_attempt_of, write
from tests.worker.test_dependency_sweep import sweep

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

InThread = Callable[..., DjangoThread]
OpenOwn = Callable[[], OwnConnection]
EFFECTS = [
    (Kind.DONE, "cancel", FREE),
    (Kind.FAIL, "cancel", CANCELLED),
    (Kind.FAIL, "run", FREE),
    (Kind.FAIL, "hold", HELD),
]


def end(own: OwnConnection, *running: Any, kind: Kind = Kind.DONE) -> set[int]:
    """Write the outcome of running jobs in one turn, as the pump does."""
    return write(own, *((make_attempt_of(job.id, claim=1), Outcome(kind)) for job in running))


def is_active(backend_pid: int) -> bool:
    """Is the session in the middle of a statement?"""
    with connection.cursor() as cursor:
        cursor.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [backend_pid])
        return bool(cursor.fetchone() == ("active",))


def wait_until_committing(thread: DjangoThread) -> None:
    """Wait until a thread's COMMIT waits for somebody."""
    wait_until(lambda: last_query(thread.backend_pid) == "COMMIT" and is_active(thread.backend_pid))


# Two that finish


@pytest.mark.parametrize(("how", "expected"), [("COMMIT", FREE), ("ROLLBACK", WAITING)])
def test_of_two_predecessors_that_finish_at_once_the_second_lets_the_job_go(
    open_own: OpenOwn, in_thread: InThread, how: str, expected: tuple[Any, ...]
) -> None:
    first, second = make_running_job(), make_running_job()
    job_id = enqueue_after(first.id, second.id)
    one, other = open_own(), open_own()
    with open_transaction(one) as finish:
        assert end(one, first) == {first.id}
        other.open()
        racer = in_thread(lambda: end(other, second))
        wait_until(lambda: is_active(other.open().info.backend_pid))
        finish(how)
    assert racer.result() == {second.id}
    assert state(job_id) == expected


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.FAIL])
def test_a_hundred_predecessors_finishing_on_two_connections_let_a_job_go_once(
    open_own: OpenOwn, in_thread: InThread, kind: Kind
) -> None:
    """Exact by the lock of the waiting job's row: none is counted twice or lost."""
    worker = make_worker()
    running = [make_running_job(worker) for _ in range(100)]
    joins = [enqueue_after(*(job.id for job in running), after_failure="run") for _ in range(3)]
    random.Random(1).shuffle(running)

    def finish(part: list[Any]) -> None:
        own = open_own()
        for start in range(0, len(part), 5):
            end(own, *part[start : start + 5], kind=kind)

    racers = [in_thread(lambda part=running[n::2]: finish(part)) for n in range(2)]
    for racer in racers:
        racer.result()
    assert [state(job_id) for job_id in joins] == [FREE] * 3
    assert edges() == []


def test_a_failure_and_a_success_at_once_cancel_the_job(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    """The row is moved to the other partition while the second wants its lock."""
    failing, succeeding = make_running_job(), make_running_job()
    job_id = enqueue_after(failing.id, succeeding.id)
    one, other = open_own(), open_own()
    with open_transaction(one) as finish:
        end(one, failing, kind=Kind.FAIL)
        other.open()
        racer = in_thread(lambda: end(other, succeeding))
        wait_until_role_is_blocked("test")
        finish("COMMIT")
    assert racer.result() == {succeeding.id}
    assert (state(job_id), edges()) == (CANCELLED, [])


def test_two_turns_that_finish_crosswise_do_not_deadlock(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    """Each has a success and a failure, of the same two groups that others wait for."""
    worker = make_worker()
    left, right = ([make_running_job(worker) for _ in range(40)] for _ in range(2))
    joins = [
        enqueue_after(*(job.id for job in group), after_failure="run") for group in (left, right)
    ]

    def finish(successes: list[Any], failures: list[Any]) -> None:
        own = open_own()
        for done, failed in zip(successes, failures, strict=True):
            write(
                own,
                (make_attempt_of(done.id, claim=1), Outcome(Kind.DONE)),
                (make_attempt_of(failed.id, claim=1), Outcome(Kind.FAIL)),
            )

    racers = [
        in_thread(lambda: finish(left[:20], right[:20])),
        in_thread(lambda: finish(right[20:], left[20:])),
    ]
    for racer in racers:
        racer.result()
    assert [state(job_id) for job_id in joins] == [FREE, FREE]


def test_waiting_jobs_are_locked_in_the_order_of_their_ids(
    open_own: OpenOwn, in_thread: InThread, open_connection: Callable[..., psycopg.Connection]
) -> None:
    running = make_running_job()
    waiting = [enqueue_after(running.id) for _ in range(6)]
    finisher, holder = open_own(), open_connection()
    finisher.open()
    lock = "SELECT FROM pgjobs_job_live WHERE id = ANY (%s) FOR UPDATE NOWAIT"
    with holder.transaction():
        holder.execute(lock, [waiting[:1]])
        racer = in_thread(lambda: end(finisher, running))
        wait_until_role_is_blocked("test")
        open_connection().execute(lock, [waiting[1:]])
    assert racer.result() == {running.id}
    sweep(finisher)  # what the finisher left, if the lock was held for longer than it waits
    assert {state(job_id) for job_id in waiting} == {FREE}


def test_a_finish_does_not_wait_long_for_somebody_who_keeps_the_waiting_job_locked(
    own: OwnConnection,
) -> None:
    """The worker goes on; the sweep does the rest."""
    running, other = make_running_job(), make_running_job()
    job_id, free = enqueue_after(running.id, other.id), enqueue_after(running.id)
    with transaction.atomic():
        assert cancel(job_id)
        assert end(own, running) == {running.id}
        transaction.set_rollback(True)
    assert state(free) == FREE
    assert state(job_id) == ("ready", "dependencies", 2)
    sweep(own)
    assert state(job_id) == WAITING


# A finish and an enqueue


@pytest.mark.parametrize(("kind", "after_failure", "expected"), EFFECTS)
def test_a_predecessor_that_finishes_before_the_commit_of_the_enqueue_is_noticed(
    own: OwnConnection, kind: Kind, after_failure: str, expected: tuple[Any, ...]
) -> None:
    """S1.15; S2.8: the database sees to it, whatever isolation would hide."""
    running = make_running_job()
    with transaction.atomic():
        job_id = enqueue_after(running.id, after_failure=after_failure)
        assert end(own, running, kind=kind) == {running.id}
        assert state(job_id) == WAITING
    assert state(job_id) == expected


def test_what_waits_for_a_job_that_the_commit_cancels_is_cancelled_too(own: OwnConnection) -> None:
    running = make_running_job()
    with transaction.atomic():
        chain = [enqueue_after(running.id)]
        chain += [enqueue_after(chain[-1])]
        end(own, running, kind=Kind.FAIL)
    assert [state(job_id) for job_id in chain] == [CANCELLED] * 2


@pytest.mark.parametrize(("how", "expected"), [("COMMIT", FREE), ("ROLLBACK", WAITING)])
def test_a_commit_waits_for_a_finish_that_is_under_way(
    own: OwnConnection, in_thread: InThread, how: str, expected: tuple[Any, ...]
) -> None:
    running = make_running_job()
    with open_transaction(own) as finish:
        assert end(own, running) == {running.id}
        enqueuer = in_thread(lambda: enqueue_after(running.id))
        wait_until_committing(enqueuer)
        finish(how)
    job_id = enqueuer.result()
    assert state(job_id) == expected
    if expected == WAITING:
        end(own, running)
        assert state(job_id) == FREE


def test_a_finish_waits_for_a_commit_that_is_under_way_and_sees_what_it_brings(
    own: OwnConnection, in_thread: InThread
) -> None:
    """Between the commit's look and its end, nobody else can finish the predecessor."""
    running = make_running_job()
    own.open()
    with transaction.atomic():
        job_id = enqueue_after(running.id)
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what the commit does first
        finisher = in_thread(lambda: end(own, running))
        wait_until_role_is_blocked("test")
    assert finisher.result() == {running.id}
    assert state(job_id) == FREE


def waits_for_a_lock(until: threading.Event, pid: int) -> bool:
    """Does a session wait for the lock of another one at any time *until* then?"""
    blocked = False
    with connect() as observer:
        while not blocked and not until.is_set():
            query = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
            blocked = observer.execute(query, [pid]).fetchone() == (True,)
    return blocked


def test_a_commit_does_not_wait_for_a_turn_that_waits_for_it(
    own: OwnConnection, in_thread: InThread
) -> None:
    """The turn has finished one predecessor, and the commit keeps it from finishing the other.

    It resolves what the commit brings, because it looks when it has got all of its locks.
    """
    first, second = make_running_job(), make_running_job()
    own.open()
    with transaction.atomic(), connection.cursor() as cursor:
        waiting = [enqueue_after(first.id, after_failure="run")]
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        turn = [
            (make_attempt_of(second.id, claim=1), Outcome(Kind.DONE)),
            (make_attempt_of(first.id, claim=1), Outcome(Kind.FAIL)),
        ]
        finisher = in_thread(lambda: write(own, *turn))
        wait_until_role_is_blocked("test")
        waiting += [enqueue_after(second.id)]
        committed = threading.Event()
        watcher = in_thread(lambda: waits_for_a_lock(committed, backend_pid(cursor.connection)))
    committed.set()
    assert not watcher.result()
    assert finisher.result() == {first.id, second.id}
    assert [state(job_id) for job_id in waiting] == [FREE, FREE]


def test_what_a_commit_brings_for_which_the_turn_waits_is_not_lost(
    own: OwnConnection, in_thread: InThread
) -> None:
    """The turn has chosen whom to let go, and waits for one of them; then there is one more."""
    running = make_running_job()
    waiting = [enqueue_after(running.id)]
    own.open()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", waiting)
        waiting += [enqueue_after(running.id)]
        finisher = in_thread(lambda: end(own, running))
        wait_until_role_is_blocked("test")
    assert finisher.result() == {running.id}
    sweep(own)
    assert [state(job_id) for job_id in waiting] == [FREE, FREE]


@pytest.mark.slow
def test_a_commit_does_not_wait_long_for_a_predecessor_that_stays_locked(
    own: OwnConnection,
) -> None:
    """The sweep does the rest."""
    running = make_running_job()
    with open_transaction(own) as finish:
        end(own, running)
        job_id = enqueue_after(running.id)
        assert state(job_id) == WAITING
        finish("COMMIT")
    assert state(job_id) == WAITING
    sweep(own)
    assert state(job_id) == FREE


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_that_hides_the_finish_leaves_it_to_the_sweep(
    own: OwnConnection, level: str
) -> None:
    """docs/dependencies.md: no error, but a delay."""
    running = make_running_job()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        Effect.objects.create(key="in the snapshot")
        end(own, running)
        job_id = enqueue_after(running.id)
    assert state(job_id) == WAITING
    sweep(own)
    assert state(job_id) == FREE


def test_enqueues_and_finishes_at_random_leave_nobody_waiting(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    """Two threads enqueue after jobs that two others are just finishing."""
    worker = make_worker()
    running = [make_running_job(worker) for _ in range(120)]
    waiting: list[int] = []

    def finish(part: list[Any]) -> None:
        own = open_own()
        for job in part:
            end(own, job)

    def enqueue(part: list[Any]) -> None:
        for one, other in pairwise(part):
            with transaction.atomic():
                waiting.append(enqueue_after(one.id, other.id))

    racers = [in_thread(lambda part=running[n::2]: finish(part)) for n in range(2)]
    racers += [in_thread(lambda part=running[n::2]: enqueue(part)) for n in range(2)]
    for racer in racers:
        racer.result()
    assert len(waiting) == 118
    assert {state(job_id) for job_id in waiting} == {FREE}
    assert edges() == []


def test_a_cancel_that_meets_the_finish_of_the_predecessor_leaves_one_end(
    own: OwnConnection, in_thread: InThread
) -> None:
    running = make_running_job()
    job_id = enqueue_after(running.id)
    with open_transaction(own) as finish:
        end(own, running)
        canceller = in_thread(lambda: cancel(job_id))
        canceller.wait_until_executed("SELECT job.status")
        finish("COMMIT")
    assert canceller.result() is True
    assert (state(job_id), edges()) == (CANCELLED, [])


def test_a_rescue_of_the_predecessor_that_meets_the_enqueue_is_noticed(own: OwnConnection) -> None:
    lost = make_running_job(make_worker(lease_seconds=-1), max_losses=1)
    with transaction.atomic():
        job_id = enqueue_after(lost.id)
        with own.cursor() as cursor:
            assert len(jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)) == 1
    assert (get_job(lost.id).status, state(job_id)) == ("failed", CANCELLED)
