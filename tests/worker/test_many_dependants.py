"""Many jobs that wait for one: a statement lets a page of them go, and none is lost in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_pgjobs import cancel, requeue
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.queries import claims, dependencies
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.claiming.outcome_statements import writings
from django_pgjobs.worker.process.pruner import Pruner
from django_pgjobs.worker.running.calling import run_in_thread
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests import tasks as plain_tasks
from tests.factories import count_jobs, get_job, make_job, make_jobs, make_running_job, make_worker
from tests.helpers import wait_until
from tests.test_dependencies import CANCELLED, FREE, HELD, WAITING, edges, enqueue_after, state
from tests.worker.support import Bench, ThreadedWorker, make_attempt_of
from tests.worker.test_dependencies import end, execute, lines
from tests.worker.test_dependency_sweep import sweep

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
PAGE = 10
WHOLE_PAGE = dependencies.PAGE


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a statement resolve ten dependencies."""
    monkeypatch.setattr(dependencies, "PAGE", PAGE)


def make_waiting(
    count: int, predecessor_id: int, after_failure: str = "cancel", **columns: Any
) -> list[int]:
    """Make jobs that wait for one; return their ids in order."""
    with transaction.atomic():
        waiting = make_jobs(count, hold="dependencies", waits_for=1, **columns)
        let_wait(waiting, predecessor_id, after_failure)
    return waiting


def let_wait(waiting: Iterable[int], predecessor_id: int, after_failure: str = "cancel") -> None:
    """Add the dependencies of jobs on one."""
    execute(
        "INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)"
        " SELECT %s, id, %s FROM unnest(%s::bigint[]) AS id",
        predecessor_id,
        after_failure,
        list(waiting),
    )


def states(job_ids: Iterable[int]) -> list[tuple[str, str | None, int]]:
    return [state(job_id) for job_id in job_ids]


def resolve(
    own: OwnConnection, *ids: int, rest: list[dependencies.Position] | None = None
) -> list[dependencies.Position]:
    """Send one statement of the pump; return where to go on."""
    send = partial(dependencies.send_resolution, ids=ids, rest=rest or [])
    [rows] = own.round_trip([send])
    return dependencies.rest_of(rows)


def finish(own: OwnConnection, *running: Any, kind: Kind = Kind.DONE) -> None:
    """Write the outcome of running jobs, and resolve nothing."""
    batch = [(make_attempt_of(job.id, claim=job.claim), Outcome(kind)) for job in running]
    own.round_trip([writing.send for writing in writings(batch)])


# A worker


def test_the_turn_that_finishes_a_job_lets_a_thousand_go(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other jobs of the worker wait for it."""
    monkeypatch.setattr(dependencies, "PAGE", WHOLE_PAGE)
    running = make_running_job()
    waiting = make_waiting(2_500, running.id)
    assert end(own, running) == {running.id}
    assert len(edges()) == 1_500
    assert states([waiting[999], waiting[1000]]) == [FREE, WAITING]


def test_a_worker_lets_all_go(drain: Start) -> None:
    first = plain_tasks.add.enqueue(1, 2)
    make_waiting(20 * PAGE + 3, int(first.id))
    drain()
    assert count_jobs(status="successful") == 20 * PAGE + 4
    assert edges() == []


@pytest.mark.slow
def test_a_drain_waits_for_those_who_are_still_to_be_let_go(
    drain: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to run meanwhile, and looks some times: those before are for others."""
    looks = 0
    send_listing, send_resolution = claims.send_lane_listing, dependencies.send_resolution

    def counted(*args: Any, **kwargs: Any) -> None:
        nonlocal looks
        looks += 1
        send_listing(*args, **kwargs)

    def slow(cursor: Cursor, ids: Sequence[int], rest: Sequence[dependencies.Position]) -> None:
        if rest:
            looked = looks
            wait_until(lambda: looks > looked + 3)
        send_resolution(cursor, ids, rest)

    # As if it had pruned, and swept dependencies, before.
    monkeypatch.setattr(Pruner, "ask", lambda pruner: setattr(pruner, "pruned_at", 0.0))
    monkeypatch.setattr(claims, "send_lane_listing", counted)
    monkeypatch.setattr(dependencies, "send_resolution", slow)
    first = plain_tasks.add.enqueue(1, 2)
    make_waiting(2 * PAGE, int(first.id), queue_name="others")
    [last] = make_waiting(1, int(first.id))
    drain(queues=("default",))
    assert get_job(last).status == "successful"


@pytest.mark.slow
def test_dependants_of_one_key_run_in_order_across_pages(
    start_thread: Start, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    first = plain_tasks.add.enqueue(1, 2)
    waiting = plain_tasks.touch.using(after=first, concurrency_key="shop:1")
    waiting.enqueue_many((str(journal), str(number)) for number in range(35))
    start_thread(concurrency=4)
    wait_until(lambda: count_jobs(status="successful") == 36)
    assert lines(journal) == [str(number) for number in range(35)]


def test_other_outcomes_travel_in_between(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    send = dependencies.send_resolution

    def note(cursor: Any, ids: Any, rest: Any = ()) -> None:
        sent.append((len(ids), len(rest)))
        send(cursor, ids, rest)

    monkeypatch.setattr(dependencies, "PAGE", 1)
    monkeypatch.setattr(dependencies, "send_resolution", note)
    first = plain_tasks.add.enqueue(1, 2)
    waiting = make_waiting(100, int(first.id))
    start_thread()
    wait_until(lambda: count_jobs(status="successful") == len(waiting) + 1)
    assert [ended for ended, rest in sent if ended and rest]


def test_the_sweep_finds_what_a_worker_that_was_killed_had_left(own: OwnConnection) -> None:
    running = make_running_job()
    waiting = make_waiting(35, running.id)
    end(own, running)
    assert states(waiting) == [FREE] * PAGE + [WAITING] * 25
    assert sweep(own, max_dependencies=PAGE) == 3
    assert states(waiting) == [FREE] * 35


def test_one_with_many_dependants_does_not_keep_those_of_others(own: OwnConnection) -> None:
    many, few = make_running_job(), make_running_job()
    waiting, other = make_waiting(35, many.id), make_waiting(2, few.id)
    finish(own, many, few)
    rest = resolve(own, many.id, few.id)
    assert states(other) == [WAITING] * 2
    rest = resolve(own, rest=rest)
    assert states(other) == [FREE] * 2
    assert states(waiting) == [FREE] * 18 + [WAITING] * 17
    later = make_running_job()
    last = make_waiting(1, later.id)
    finish(own, later)
    rest = resolve(own, later.id, rest=rest)
    assert states(last) == [FREE]
    while rest:
        rest = resolve(own, rest=rest)
    assert states(waiting) == [FREE] * 35


def test_no_call_looks_again_at_what_was_looked_at(own: OwnConnection) -> None:
    """Held jobs keep their dependencies, and one that is locked does too."""
    running = make_running_job()
    held = make_waiting(15, running.id, "hold")
    free = make_waiting(15, running.id, "run")
    finish(own, running, kind=Kind.FAIL)
    rest, calls = resolve(own, running.id), 1
    while rest:
        rest, calls = resolve(own, rest=rest), calls + 1
    assert calls == 4
    assert states([*held, *free]) == [HELD] * 15 + [FREE] * 15


def test_a_dependant_that_is_locked_does_not_keep_those_behind_it(
    own: OwnConnection, open_connection: Callable[..., psycopg.Connection]
) -> None:
    running = make_running_job()
    waiting = make_waiting(25, running.id)
    finish(own, running)
    holder = open_connection()
    with holder.transaction():
        holder.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [waiting[3]])
        rest = resolve(own, running.id)
        while rest:
            rest = resolve(own, rest=rest)
    assert [job_id for job_id in waiting if state(job_id) != FREE] == [waiting[3]]
    sweep(own)
    assert state(waiting[3]) == FREE


def test_an_unfinished_predecessor_takes_no_room_on_a_page(own: OwnConnection) -> None:
    """A retry of a job with many dependants travels with the finish of another."""
    unfinished, running = make_running_job(), make_running_job()
    waiting, other = make_waiting(35, unfinished.id), make_waiting(3, running.id)
    finish(own, running)
    assert resolve(own, unfinished.id, running.id) == []
    assert states([*waiting, *other]) == [WAITING] * 35 + [FREE] * 3


def test_a_failure_that_cancels_many_goes_on_with_those_who_wait_for_them(
    own: OwnConnection,
) -> None:
    running = make_running_job()
    waiting = make_waiting(12, running.id)
    behind = [job_id for first in waiting for job_id in make_waiting(3, first)]
    finish(own, running, kind=Kind.FAIL)
    rest, calls = resolve(own, running.id), 1
    while rest:
        rest, calls = resolve(own, rest=rest), calls + 1
    assert states([*waiting, *behind]) == [CANCELLED] * 48
    assert edges() == []
    assert calls <= 6


def test_a_refused_dependant_keeps_no_other_of_the_same_predecessor_in_a_sweep(
    own: OwnConnection,
) -> None:
    """A page of one dependency touches no more than this one."""
    predecessor = make_job(status="successful")
    waiting = make_waiting(5, make_job())
    execute("UPDATE pgjobs_dependency SET predecessor_id = %s", predecessor)
    with own.cursor() as cursor:
        position = dependencies.sweep_dependencies(
            cursor, (predecessor, waiting[1]), max_dependencies=1
        )
    assert position == (predecessor, waiting[2])
    assert states(waiting) == [WAITING] * 2 + [FREE] + [WAITING] * 2


@pytest.mark.slow
def test_dependants_that_the_server_refuses_are_left_to_the_sweep(
    own: OwnConnection, drain: Start
) -> None:
    """The drain is over, and not busy with them for ever."""
    first = plain_tasks.add.enqueue(1, 2)
    waiting = make_waiting(25, int(first.id))
    execute(f"ALTER TABLE pgjobs_job_live ADD CHECK (id <> {waiting[14]} OR hold IS NOT NULL)")
    try:
        drain()
        assert state(waiting[14]) == WAITING
    finally:
        execute("ALTER TABLE pgjobs_job_live DROP CONSTRAINT pgjobs_job_live_check")
    sweep(own)
    assert state(waiting[14]) == FREE
    assert edges() == []


# Whoever else ends jobs


@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_cancel_reaches_all_that_wait(in_transaction: bool) -> None:
    first = make_job()
    waiting = make_waiting(25, first)
    waiting += make_waiting(25, waiting[-1])
    if in_transaction:
        with transaction.atomic():
            assert cancel(first)
    else:
        assert cancel(first)
    assert states(waiting) == [CANCELLED] * 50


def test_a_discard_of_the_admin_reaches_all_that_wait() -> None:
    first = make_job()
    waiting = make_waiting(25, first)
    with connection.cursor() as cursor:
        assert ACTIONS["discard"].apply(cursor, [first], {}).changed == [first]
    assert states(waiting) == [CANCELLED] * 25


def test_an_atomic_task_lets_all_go_in_its_transaction(bench: Bench) -> None:
    running = plain_tasks.record_atomic.enqueue("x")
    waiting = make_waiting(25, int(running.id))
    assert run_in_thread(bench.claim(), bench.options).stored
    assert states(waiting) == [FREE] * 25


def test_run_jobs_runs_all_that_wait() -> None:
    first = plain_tasks.add.enqueue(1, 2)
    make_waiting(25, int(first.id))
    assert run_jobs() == 26


def test_a_rescue_lets_a_page_go_and_the_sweep_the_others(start_thread: Start) -> None:
    lost = make_running_job(make_worker(lease_seconds=-1), max_losses=1)
    waiting = make_waiting(25, lost.id, "run")
    worker = start_thread()
    wait_until(lambda: get_job(lost.id).status == "failed")
    wait_until(lambda: worker.wake() or count_jobs(status="successful") == len(waiting))


def test_a_commit_resolves_its_own_dependencies_and_not_all_that_are_left(
    own: OwnConnection,
) -> None:
    """Hundreds of thousands of others may be on their way just now."""
    running = make_running_job()
    others = make_waiting(5, running.id)
    with transaction.atomic():
        job_ids = [enqueue_after(running.id) for _ in range(3)]
        finish(own, running)
    assert states(job_ids) == [FREE] * 3
    assert states(others) == [WAITING] * 5


def test_a_requeue_between_two_pages_delays_nobody(own: OwnConnection) -> None:
    """All of them waited for the end that was."""
    running = make_running_job()
    waiting = make_waiting(25, running.id)
    finish(own, running)
    resolve(own, running.id)
    assert states(waiting) == [FREE] * PAGE + [WAITING] * 15
    assert requeue(running.id)
    assert states(waiting) == [FREE] * 25
