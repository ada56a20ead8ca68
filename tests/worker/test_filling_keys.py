"""Fillings that are to have a unique key, and those of workers that leave."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest
from django.db import IntegrityError, transaction
from psycopg.errors import LockNotAvailable

from django_pgjobs.models import Statistic
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.filling import split
from django_pgjobs.worker.claiming.writing import Writing
from django_pgjobs.worker.process.farewell import Farewell
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.state import WorkerState
from tests.factories import count_jobs, get_job, make_jobs, make_worker
from tests.helpers import connect, wait_until
from tests.worker import declared
from tests.worker.support import (
    ThreadedWorker,
    claim,
    make_options,
    write,
)
from tests.worker.test_filling import come_upon, insert

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def test_a_unique_key_that_is_taken_meanwhile_fails_nothing(
    own: OwnConnection, worker: int
) -> None:
    """Between the statement's look and its write: then it is tried again a little later."""
    insert(declared.unique, kwargs={"month": "May"})
    batch = come_upon(own, worker)
    state = WorkerState(make_options(), "test:1", worker_id=worker)
    completer = Completer(state, Tally(), lambda attempt, outcome: None)
    writing = Writing(completer, own, [], [], batch)
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        make_jobs(2, unique_key="taken")
    with mock.patch.object(own, "round_trip", side_effect=caught.value.__cause__):
        writing.write_keyed()
    [(attempt, _)] = batch
    assert completer.aside(attempt) is batch[0][1]


def test_a_twin_that_is_not_committed_yet_is_waited_for(start_thread: Start) -> None:
    with connect() as other, other.transaction():
        other.execute(
            "INSERT INTO pgjobs_job (task_path, args, queue_name, unique_key, is_declared)"
            " VALUES (%s, '[\"May\"]', 'later', 'report:May', TRUE)",
            [declared.unique.module_path],
        )
        [twin] = insert(declared.unique, kwargs={"month": "May"})
        [free] = insert(declared.free)
        start_thread(queues=frozenset({"default"}), poll_interval=0.05)
        wait_until(lambda: get_job(free).status == "successful")
        assert get_job(twin).status == "running"
    wait_until(lambda: get_job(twin).status == "cancelled")
    assert sum(Statistic.objects.values_list("cancelled", flat=True)) == 1


@pytest.mark.slow
def test_keys_of_a_transaction_under_way_keep_nobody_else(start_thread: Start) -> None:
    """However many they are: other jobs run, and each filling is written in the end."""
    months = [str(number) for number in range(40)]
    with connect() as other, other.transaction():
        for month in months:
            other.execute(
                "INSERT INTO pgjobs_job (task_path, args, queue_name, unique_key, is_declared)"
                " VALUES (%s, '[]', 'later', %s, TRUE)",
                [declared.unique.module_path, f"report:{month}"],
            )
        twins = [insert(declared.unique, kwargs={"month": month})[0] for month in months]
        start_thread(queues=frozenset({"default"}), poll_interval=0.05)
        wait_until(lambda: count_jobs(status="running") == len(twins))
        for month in ("June", "July"):
            # One more that has to wait, and one with a key that is free.
            twins += insert(declared.unique, kwargs={"month": "0"})
            [keyed] = insert(declared.unique, kwargs={"month": month})
            [free] = insert(declared.free)
            wait_until(lambda free=free: get_job(free).status == "successful")  # type: ignore[misc]
        wait_until(lambda: get_job(keyed).status == "successful")
        assert {get_job(job_id).status for job_id in twins} == {"running"}
    wait_until(lambda: {get_job(job_id).status for job_id in twins} == {"cancelled"})


def test_keys_of_a_transaction_under_way_rest_together(own: OwnConnection, worker: int) -> None:
    """One is tried, the others after a while."""
    for month in ("May", "June"):
        insert(declared.unique, kwargs={"month": month})
    batch = come_upon(own, worker)
    state = WorkerState(make_options(), "test:1", worker)
    completer = Completer(state, Tally(), mock.Mock())
    with mock.patch.object(own, "round_trip", side_effect=LockNotAvailable) as tries:
        Writing(completer, own, [], [], batch).write_keyed()
    assert tries.call_count == 1
    assert (completer.aside(batch[0][0]), completer.take_due_keys()) == (batch[0][1], [])


@pytest.mark.parametrize("leaving", ["gives back", "leaves", "leaves in a turn"])
def test_a_worker_that_leaves_takes_no_job_from_another(
    own: OwnConnection,
    worker: int,
    open_own: Callable[[], OwnConnection],
    leaving: str,
) -> None:
    """It does not know that its filling is written, and that the other has claimed the job."""
    [job_id] = insert(declared.unique_until_claimed, kwargs={"month": "May"})
    state = WorkerState(make_options(), "test:1", worker)
    completer = Completer(state, Tally(), mock.Mock())
    [row] = claim(own, worker)
    attempt = make_attempt(row, make_options())
    state.held[attempt.id] = attempt
    assert split([attempt], completer.add, on_next=mock.Mock()) == []
    batch = completer.take()
    write(own, *batch)
    completer.put_back(batch, is_sent=True)
    another = make_worker()
    claim(open_own(), another)
    farewell = Farewell(state, completer)
    if leaving == "gives back":
        farewell.release([attempt])
        write(own, *completer.take())
    else:
        if leaving == "leaves in a turn":
            completer.take()
        farewell.give_back_held(open_own())
    job = get_job(job_id)
    assert (job.status, job.worker_id) == ("running", another)


def test_a_worker_that_leaves_does_not_wait_for_a_key(own: OwnConnection, worker: int) -> None:
    """It gives the job back without what the task declares; the next worker sees to that."""
    [job_id] = insert(declared.unique, kwargs={"month": "May"})
    [(attempt, outcome)] = come_upon(own, worker)
    state = WorkerState(make_options(), "test:1", worker)
    state.held[attempt.id] = attempt
    completer = Completer(state, Tally(), mock.Mock())
    completer.put_aside((attempt, outcome))
    Farewell(state, completer).give_back_held(own)
    job = get_job(job_id)
    assert (job.status, job.is_declared, job.attempts) == ("ready", False, 0)


def test_a_worker_that_stops_gives_back_what_waits_for_a_key(
    own: OwnConnection, worker: int
) -> None:
    """At once: it would wait as long as for jobs that run."""
    [job_id] = insert(declared.unique, kwargs={"month": "May"})
    [(attempt, outcome)] = come_upon(own, worker)
    state = WorkerState(make_options(), "test:1", worker, stopping=True)
    state.held[attempt.id] = attempt
    completer = Completer(state, Tally(), mock.Mock())
    completer.put_aside((attempt, outcome))
    assert completer.take_due_keys() == []
    write(own, *completer.take_due())
    job = get_job(job_id)
    assert (job.status, job.is_declared, job.attempts) == ("ready", False, 0)


def test_a_filling_that_is_written_is_not_tried_for_ever(own: OwnConnection, worker: int) -> None:
    """Nor when another attempt has the job."""
    [job_id] = insert(declared.unique_until_claimed, kwargs={"month": "May"})
    batch = come_upon(own, worker)
    write(own, *batch)
    claim(own, worker)
    [(attempt, _)] = batch
    state = WorkerState(make_options(), "test:1", worker)
    state.held[attempt.id] = attempt
    completer = Completer(state, Tally(), mock.Mock())
    Writing(completer, own, [], [], batch).write_keyed()
    assert (completer.aside(attempt), state.held) == (None, {})
    assert get_job(job_id).status == "running"
