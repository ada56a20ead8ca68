"""Outcomes that the server refuses to write at all for a while, in whole workers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
import pytest

from django_pgjobs import cancel
from django_pgjobs.models import Job
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming import refused
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.writing import Writing, write_last
from django_pgjobs.worker.process.farewell import Farewell
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.sending import Sender
from django_pgjobs.worker.turns.turn import Turn
from tests import tasks
from tests.factories import count_jobs, get_job, make_job, make_jobs
from tests.helpers import WAIT_SECONDS, connect, wait_until
from tests.models import Effect
from tests.test_dependencies import enqueue_after
from tests.worker.refusing import ENDS, allow, refuse_instead
from tests.worker.support import NEVER, ThreadedWorker, claim, make_attempt_of, make_options

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
ADD = "tests.tasks.add"


def wait_until_kept(worker: ThreadedWorker, jobs: int) -> None:
    wait_until(lambda: len(worker.runner.completer.refused) == jobs)


def try_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no refused outcome be tried again within a test."""
    monkeypatch.setattr(refused, "PAUSES", (NEVER, NEVER))


def try_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let refused outcomes be tried again soon, and often."""
    monkeypatch.setattr(refused, "PAUSES", (0.01, NEVER))


@contextmanager
def between_tries(worker: ThreadedWorker, job_id: int) -> Iterator[None]:
    """Keep a job's row from before the block until a try to write its outcome has ended.

    Else one that began before, and was refused, would write a failure after the block.
    """
    outcomes, has_tried = worker.runner.completer.refused, threading.Event()
    note_tried = outcomes.note_tried

    def noted(*args: Any) -> None:
        note_tried(*args)
        has_tried.set()

    with connect(autocommit=False) as holder:
        holder.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [job_id])
        with mock.patch.object(outcomes, "note_tried", noted):
            yield
            assert has_tried.wait(WAIT_SECONDS)


def test_a_worker_that_ends_writes_them_if_the_server_takes_them_by_then(
    start_thread: Start, refuse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who repairs a trigger and restarts the workers does not let the jobs run twice."""
    try_seldom(monkeypatch)
    refuse()
    for key in "ab":
        tasks.record.enqueue(key)
    worker = start_thread()
    wait_until_kept(worker, 2)
    allow()
    assert worker.stop() == 0
    assert count_jobs(status="successful") == 2
    assert worker.runner.state.finished_jobs == 2


@pytest.mark.slow
def test_where_too_many_are_kept_no_more_jobs_of_the_task_are_claimed_but_those_of_others(
    start_thread: Start, refuse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of those that ran is lost."""
    monkeypatch.setattr(refused, "MOST_KEPT", 5)
    refuse(f"NEW.task_path = '{ADD}' AND {ENDS}")
    jobs = make_jobs(60, ADD)
    worker = start_thread(concurrency=1, claim_limit=2)
    wait_until(lambda: worker.runner.state.refused_paths == {ADD})
    others = make_jobs(20, "tests.tasks.echo", priority=-1)
    wait_until(lambda: count_jobs(status="successful") == len(others))
    assert count_jobs(status="ready", task_path=ADD) > len(jobs) / 2
    try_at_once(monkeypatch)
    allow()
    wait_until(lambda: count_jobs(status="successful") == len(jobs) + len(others))
    assert {get_job(job_id).attempts for job_id in jobs} == {1}


@pytest.mark.slow
def test_to_try_them_again_says_nothing_and_takes_no_turn_of_the_others(
    start_thread: Start,
    refuse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Hundreds of them would fill the log."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(refused, "PAUSES", (0.01, 0.01))
    refuse(f"NEW.task_path = '{ADD}' AND {ENDS}")
    make_jobs(3, ADD)
    worker = start_thread()
    wait_until_kept(worker, 3)
    said = [r for r in caplog.records if r.levelno >= logging.WARNING]
    tried: list[float] = []
    note_tried = worker.runner.completer.refused.note_tried

    def noted(*args: object) -> None:
        tried.append(1)
        note_tried(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(worker.runner.completer.refused, "note_tried", noted)
    wait_until(lambda: len(tried) > 5)
    make_job("tests.tasks.echo")
    wait_until(lambda: count_jobs(status="successful") == 1)
    wait_until(lambda: len(tried) > 10)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == said


@pytest.mark.slow
def test_no_warning_of_the_driver_follows_a_refusal(
    start_thread: Start, refuse: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    refuse()
    make_jobs(30, ADD)
    wait_until_kept(start_thread(), 30)
    assert [r.getMessage() for r in caplog.records if r.name == "psycopg"] == []


@pytest.mark.slow
def test_many_of_them_are_found_in_several_turns(
    own: OwnConnection,
    worker: int,
    refuse: Callable[..., None],
) -> None:
    """Claims and other outcomes go on in between."""
    make_jobs(150, ADD)
    state = WorkerState(make_options(), "test:1")
    completer = Completer(state, Tally(), lambda attempt, outcome: None)
    for row in claim(own, worker, 150):
        attempt = state.held[row.id] = make_attempt(row, state.options)
        completer.add(attempt, Outcome(Kind.DONE))
    refuse()
    turns = 0
    while state.held:
        turns += 1
        turn = Turn(worker)
        writing = Writing.of_due(completer, own, flushes=True, on_queues=lambda queues: None)
        writing.plan(turn)
        Sender("test:1").send(turn, own)
        assert len(state.held) + len(completer.refused) == 150
    assert turns > 2
    assert (len(completer), len(completer.refused)) == (0, 150)


def test_what_waits_for_such_a_job_goes_on_once_its_outcome_is_written(
    start_thread: Start, refuse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key, and a job that depends on it."""
    try_at_once(monkeypatch)
    first = make_job(ADD, concurrency_key="shop:1")
    refuse(f"NEW.id = {first} AND {ENDS}")
    second = make_job(ADD, concurrency_key="shop:1")
    dependant = enqueue_after(first)
    worker = start_thread(poll_interval=NEVER)
    wait_until_kept(worker, 1)
    with between_tries(worker, first):
        refuse_instead("FALSE")
    wait_until(lambda: count_jobs(status="successful") == 3)
    assert get_job(second).started_at > get_job(first).finished_at
    assert get_job(dependant).started_at > get_job(first).finished_at


@pytest.mark.parametrize("kept", [False, True])
def test_a_job_that_waits_and_is_refused_keeps_no_outcome_from_being_written(
    start_thread: Start,
    refuse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    kept: bool,
) -> None:
    try_at_once(monkeypatch)
    first = make_job(ADD)
    dependant = enqueue_after(first)
    refused_ends = ENDS if kept else "NEW.status = 'successful'"
    refuse(f"NEW.id = {dependant} OR NEW.id = {first} AND {refused_ends}")
    worker = start_thread()
    if kept:
        wait_until_kept(worker, 1)
        with between_tries(worker, first):
            refuse_instead(f"NEW.id = {dependant}")
    wait_until(lambda: get_job(first).finished_at is not None)
    assert get_job(first).status == ("successful" if kept else "failed")
    assert get_job(dependant).status == "ready"


def test_an_outcome_that_has_to_wait_for_a_lock_is_not_said_to_fail(
    start_thread: Start,
    refuse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody locks the row just between the refusal and the failure; the server takes it then."""
    job_id = make_job(ADD)
    refuse("NEW.status = 'successful'")
    with connect() as allowing, connect(autocommit=False) as other:

        def lock(*args: Any) -> Any:
            allowing.execute("DROP FUNCTION refuse_job() CASCADE")
            other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [job_id])
            return refused.plain_failure(*args)

        monkeypatch.setattr("django_pgjobs.worker.claiming.writing.plain_failure", lock)
        worker = start_thread()
        wait_until(lambda: worker.runner.completer.unwritten() and not len(worker.runner.completer))
    wait_until(lambda: count_jobs(status="successful") == 1)
    assert [r.getMessage() for r in caplog.records if "it fails" in r.getMessage()] == []


def test_a_job_that_is_cancelled_or_deleted_meanwhile_is_not_run_again(
    start_thread: Start, refuse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    try_seldom(monkeypatch)
    refuse()
    cancelled, deleted = (tasks.record.enqueue(key) for key in ("cancelled", "deleted"))
    worker = start_thread()
    wait_until_kept(worker, 2)
    cancel(cancelled.id)
    allow()
    Job.objects.filter(id=deleted.id).delete()
    worker.stop()
    assert get_job(cancelled.id).status == "successful"
    assert Job.objects.count() == Effect.objects.filter(key="cancelled").count() == 1


def test_what_was_refused_when_the_connection_broke_is_itself_tried_again(
    own: OwnConnection,
    worker: int,
    refuse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not the failure that was to replace it: the server may take the outcome by then."""
    job_id = make_job(ADD)
    state = WorkerState(make_options(), "test:1")
    completer = Completer(state, Tally(), lambda attempt, outcome: None)
    [row] = claim(own, worker)
    attempt = state.held[row.id] = make_attempt(row, state.options)
    completer.add(attempt, Outcome(Kind.DONE, result="3"))

    def take_turn() -> None:
        turn = Turn(worker)
        writing = Writing.of_due(completer, own, flushes=True, on_queues=lambda queues: None)
        writing.plan(turn)
        try:
            Sender("test:1").send(turn, own)
        except psycopg.OperationalError:
            writing.put_back(is_sent=True)

    def break_off(*args: object) -> None:
        allow()
        raise psycopg.OperationalError("lost")

    refuse()
    with monkeypatch.context() as patch:
        patch.setattr(Writing, "_write_alone", break_off)
        take_turn()
    assert list(state.held) == [job_id]
    take_turn()
    assert (get_job(job_id).status, get_job(job_id).result) == ("successful", 3)


def test_one_that_is_refused_at_the_very_end_takes_no_other_with_it(
    own: OwnConnection, worker: int, refuse: Callable[..., None]
) -> None:
    """Nor does a job that waits for one of them."""
    state = WorkerState(make_options(), "test:1")
    jobs = make_jobs(3, ADD)
    dependant = enqueue_after(jobs[0])
    completer = Completer(state, Tally(), lambda attempt, outcome: None)
    for row in claim(own, worker):
        attempt = state.held[row.id] = make_attempt(row, make_options())
        completer.add(attempt, Outcome(Kind.DONE, result="1"))
    refuse(f"NEW.id IN ({dependant}, {jobs[1]})")
    Farewell(state, completer).give_back_held(own)
    statuses = [get_job(job_id).status for job_id in jobs]
    assert statuses == ["successful", "running", "successful"]


def test_a_worker_that_ends_without_its_connection_says_what_it_leaves(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lose(sends: object) -> None:
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(own, "round_trip", lose)
    state = WorkerState(make_options(), "test:1")
    completer = Completer(state, Tally(), lambda attempt, outcome: None)
    completer.refused.keep(make_attempt_of(1), Outcome(Kind.DONE))
    write_last(completer, own)
    assert "refused outcomes are left to the rescue: the connection is lost" in caplog.text
    assert len(completer.refused) == 1
