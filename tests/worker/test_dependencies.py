"""Jobs that wait for jobs: every way in which a predecessor can end, and the order that results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_pgjobs import cancel, requeue
from django_pgjobs.queries import dependencies, jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.running.calling import run_in_thread
from django_pgjobs.worker.running.outcome import Kind, Outcome
from django_pgjobs.worker.upkeep import look
from tests import tasks as plain_tasks
from tests.factories import count_jobs, get_job, get_worker, make_job, make_running_job, make_worker
from tests.helpers import execute, wait_until
from tests.tasks import Mishap
from tests.test_dependencies import CANCELLED, FREE, HELD, WAITING, edges, enqueue_after, state
from tests.worker import tasks
from tests.worker.support import (
    NEVER,
    Bench,
    Gate,
    ThreadedWorker,
    claim,
    ids,
    make_attempt_of,
    write,
)

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
# What the default and the other two make of a failure.
EFFECTS = [("cancel", CANCELLED), ("run", FREE), ("hold", HELD)]


def end(own: OwnConnection, job: Any, kind: Kind = Kind.DONE, **fields: Any) -> set[int]:
    """Write the outcome of a running job as the pump does."""
    attempt = make_attempt_of(job.id, claim=job.claim)
    return write(own, (attempt, Outcome(kind, **fields)))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# Order


def test_a_waiting_job_is_not_claimed(own: OwnConnection) -> None:
    """S1.15."""
    predecessor = make_job()
    enqueue_after(predecessor)
    assert ids(claim(own, make_worker())) == [predecessor]


def test_the_last_predecessor_lets_a_job_go(own: OwnConnection) -> None:
    first, second = make_running_job(), make_running_job()
    job_id = enqueue_after(first.id, second.id)
    assert end(own, first) == {first.id}
    assert state(job_id) == WAITING
    assert end(own, second) == {second.id}
    assert (state(job_id), edges()) == (FREE, [])
    assert ids(claim(own, make_worker())) == [job_id]


def test_two_predecessors_in_one_batch_let_a_job_go(own: OwnConnection) -> None:
    running = [make_running_job() for _ in range(2)]
    job_id = enqueue_after(*(job.id for job in running))
    write(own, *((make_attempt_of(job.id, claim=1), Outcome(Kind.DONE)) for job in running))
    assert state(job_id) == FREE


def test_a_diamond_runs_in_order(start_thread: Start, tmp_path: Path) -> None:
    """S1.15; nobody polls in this test, so whoever is released is found at once."""
    journal = tmp_path / "journal"

    def touch(text: str, *predecessors: Any) -> Any:
        return plain_tasks.touch.using(after=predecessors).enqueue(str(journal), text)

    start_thread(concurrency=4)
    top = touch("top")
    left, right = touch("left", top), touch("right", top)
    touch("bottom", left, right)
    wait_until(lambda: len(lines(journal)) == 4)
    found = lines(journal)
    assert (found[0], found[3]) == ("top", "bottom")


@pytest.mark.slow
def test_a_chain_of_200_runs_in_order(start_thread: Start, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    previous: list[Any] = []
    for number in range(200):
        waiting = plain_tasks.touch.using(after=previous)
        previous = [waiting.enqueue(str(journal), str(number))]
    start_thread(concurrency=4)
    wait_until(lambda: len(lines(journal)) == 200)
    assert lines(journal) == [str(number) for number in range(200)]
    wait_until(lambda: count_jobs(status="successful") == 200)
    assert edges() == []


@pytest.mark.slow
def test_a_job_runs_after_a_hundred_others_that_two_workers_run(
    start_thread: Start, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    many = plain_tasks.touch.enqueue_many([(str(journal), "one")] * 100)
    plain_tasks.touch.using(after=many).enqueue(str(journal), "join")
    for _ in range(2):
        start_thread(concurrency=4)
    wait_until(lambda: "join" in lines(journal))
    assert lines(journal) == ["one"] * 100 + ["join"]


def test_a_job_that_enqueues_its_successor_ends_before_it_starts(
    start_thread: Start, gate: Gate
) -> None:
    start_thread()
    running = tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    job_id = enqueue_after(running)
    assert state(job_id) == WAITING
    gate.open()
    wait_until(lambda: get_job(job_id).status == "successful")


def test_the_worker_that_finishes_a_predecessor_looks_for_who_waited(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without LISTEN and long before its next poll."""
    monkeypatch.setattr(look, "FIRST_GAP_SECONDS", NEVER)
    running = tasks.wait_at_gate.enqueue()
    start_thread(listen=False)
    gate.wait_entered()
    job_id = enqueue_after(running)
    gate.open()
    wait_until(lambda: get_job(job_id).status == "successful")


def test_a_released_job_wakes_a_worker_that_listens(
    own: OwnConnection, open_connection: Callable[..., psycopg.Connection]
) -> None:
    make_worker(listening=True)
    running = make_running_job()
    enqueue_after(running.id)
    listener = open_connection()
    listener.execute("LISTEN pgjobs")
    end(own, running)
    assert [n.payload for n in listener.notifies(timeout=10, stop_after=1)] == ["default"]


@pytest.mark.slow
def test_an_idle_worker_of_another_queue_starts_the_released_job(start_thread: Start) -> None:
    first = plain_tasks.add.using(queue_name="first").enqueue(1, 2)
    second = plain_tasks.add.using(queue_name="second", after=[first]).enqueue(1, 2)
    idle = start_thread(queues=("second",))
    wait_until(lambda: get_worker(idle.id).listening)
    start_thread(queues=("first",))
    wait_until(lambda: get_job(second.id).status == "successful")


# The ends of a predecessor


@pytest.mark.parametrize("kind", [Kind.FAIL, Kind.CANCEL])
@pytest.mark.parametrize(("after_failure", "expected"), EFFECTS)
def test_a_failure_has_the_effect_that_was_chosen(
    own: OwnConnection, kind: Kind, after_failure: str, expected: tuple[Any, ...]
) -> None:
    """Issue: cancel, run anyway, hold."""
    running = make_running_job()
    job_id = enqueue_after(running.id, after_failure=after_failure)
    assert end(own, running, kind) == {running.id}
    assert state(job_id) == expected


def test_one_failure_cancels_what_waits_for_others_too(own: OwnConnection) -> None:
    failing, unfinished = make_running_job(), make_running_job()
    job_id = enqueue_after(failing.id, unfinished.id)
    end(own, failing, Kind.FAIL)
    row = get_job(job_id)
    assert (state(job_id), edges()) == (CANCELLED, [])
    assert (row.note, row.attempts) == (
        f"cancelled: job {failing.id}, which it waited for, failed",
        0,
    )
    end(own, unfinished)
    assert state(job_id) == CANCELLED


@pytest.mark.slow
def test_a_failure_goes_down_a_chain_in_one_round_trip(own: OwnConnection) -> None:
    running = make_running_job()
    chain = [running.id]
    for _ in range(200):
        chain.append(enqueue_after(chain[-1]))
    end(own, running, Kind.FAIL)
    assert {state(job_id) for job_id in chain[1:]} == {CANCELLED}
    assert edges() == []


@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.SNOOZE, Kind.UNKNOWN])
def test_an_attempt_that_is_not_the_last_ends_nobodys_waiting(
    own: OwnConnection, kind: Kind
) -> None:
    running = make_running_job()
    job_id = enqueue_after(running.id)
    assert end(own, running, kind) == {running.id}
    assert state(job_id) == WAITING


def test_an_outcome_that_comes_too_late_ends_nobodys_waiting(own: OwnConnection) -> None:
    """Fencing."""
    running = make_running_job()
    job_id = enqueue_after(running.id)
    execute("UPDATE pgjobs_job SET claim = claim + 1 WHERE id = %s", running.id)
    assert end(own, running) == set()
    assert state(job_id) == WAITING


def test_a_cancel_of_a_running_predecessor_counts_when_that_has_ended(own: OwnConnection) -> None:
    running = make_running_job()
    job_id = enqueue_after(running.id)
    assert cancel(running.id)
    assert state(job_id) == WAITING
    end(own, running, Kind.RETRY)
    assert (get_job(running.id).status, state(job_id)) == ("cancelled", CANCELLED)


def test_an_atomic_task_and_its_successors_change_in_one_transaction(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly-once database effects."""
    running = plain_tasks.record_atomic.enqueue("x")
    job_id = enqueue_after(running)
    resolve = dependencies.resolve_dependencies

    def resolve_and_fail(cursor: Any, ended: Any) -> None:
        resolve(cursor, ended)
        assert state(job_id) == FREE
        raise Mishap("before the commit")

    monkeypatch.setattr(dependencies, "resolve_dependencies", resolve_and_fail)
    attempt = bench.claim()
    assert run_in_thread(attempt, bench.options).kind is Kind.RETRY
    assert (get_job(running.id).status, state(job_id)) == ("running", WAITING)
    monkeypatch.undo()
    assert bench.run(attempt).stored
    assert (get_job(running.id).status, state(job_id)) == ("successful", FREE)


@pytest.mark.parametrize(("after_failure", "expected"), EFFECTS)
def test_a_predecessor_that_fails_with_its_worker_has_its_effect(
    own: OwnConnection, after_failure: str, expected: tuple[Any, ...]
) -> None:
    """Recovery in bounded time, bounded crash loops."""
    lost = make_running_job(make_worker(lease_seconds=-1), max_losses=1)
    job_id = enqueue_after(lost.id, after_failure=after_failure)
    with own.cursor() as cursor:
        [rescued] = jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)
    assert (rescued.id, rescued.status) == (lost.id, "failed")
    assert state(job_id) == expected


def test_a_predecessor_that_is_rescued_is_still_waited_for(own: OwnConnection) -> None:
    lost = make_running_job(make_worker(lease_seconds=-1))
    job_id = enqueue_after(lost.id)
    with own.cursor() as cursor:
        assert len(jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)) == 1
    assert state(job_id) == WAITING


def test_a_lost_claim_that_ends_as_a_cancel_has_its_effect(own: OwnConnection) -> None:
    unheld = make_running_job()
    job_id = enqueue_after(unheld.id)
    assert cancel(unheld.id)
    given = {"worker_id": unheld.worker_id, "held_ids": [], "max_jobs": 9}
    [rows] = own.round_trip([partial(jobs.send_release_unheld, **given)])
    assert rows == [(unheld.id,)]
    assert (get_job(unheld.id).status, state(job_id)) == ("cancelled", CANCELLED)


# Held


def test_a_held_job_goes_on_when_its_predecessor_is_requeued_and_succeeds(bench: Bench) -> None:
    running = make_running_job()
    job_id = enqueue_after(running.id, after_failure="hold")
    end(bench.connection, running, Kind.FAIL)
    assert requeue(running.id)
    assert state(job_id) == HELD
    bench.run()
    assert (get_job(running.id).status, state(job_id)) == ("successful", FREE)


def test_a_held_job_stays_held_when_its_predecessor_fails_again(bench: Bench) -> None:
    failing = plain_tasks.fail_once.enqueue()
    job_id = enqueue_after(failing, after_failure="hold")
    for _ in range(2):
        bench.run()
        assert state(job_id) == HELD
        assert requeue(failing)


def test_a_held_job_stays_held_when_its_other_predecessor_succeeds(own: OwnConnection) -> None:
    failing, other = make_running_job(), make_running_job()
    job_id = enqueue_after(failing.id, other.id, after_failure="hold")
    end(own, failing, Kind.FAIL)
    end(own, other)
    assert state(job_id) == HELD
    assert edges() == [(failing.id, job_id, "hold")]
