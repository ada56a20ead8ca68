"""give_back_jobs.sql and release_unheld_jobs.sql: a claimed job waits again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs import cancel
from django_pgjobs.flows import workflow
from django_pgjobs.models import Job, Statistic
from django_pgjobs.queries import batches, jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.process.farewell import Farewell
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import success
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.state import WorkerState
from tests import tasks
from tests.factories import get_job, make_jobs, make_running_job, make_worker
from tests.worker.support import claim, ids, make_options

pytestmark = pytest.mark.django_db(transaction=True)


def give_back(
    own: OwnConnection, job: Any, send: Callable[..., None] = jobs.send_returns, **changes: Any
) -> Any:
    """Give a job back and return its row."""
    given = {
        "id": job.id,
        "claim": job.claim,
        "delay": None,
        "counted": True,
        "error": "",
        "note": "",
        "age": 0.0,
        "duration": 1.0,
    }
    own.round_trip([lambda cursor: send(cursor, [jobs.Return(**(given | changes))])])
    return get_job(job.id)


def release_unheld(own: OwnConnection, worker_id: int, held_ids: list[int]) -> list[int]:
    """Return the ids of the released jobs."""
    given = {"worker_id": worker_id, "held_ids": held_ids, "max_jobs": 9, "note": "given back"}
    [rows] = own.round_trip([partial(jobs.send_release_unheld, **given)])
    return sorted(row[0] for row in rows)


def test_a_retry_counts_the_attempt(own: OwnConnection) -> None:
    """S4.11."""
    job = make_running_job(attempts=2, worker_ids=["a:1", "b:2"])
    stored = give_back(own, job, note="retry after Mishap", error='{"message": "m"}')
    assert (stored.status, stored.attempts, stored.worker_ids) == ("ready", 2, ["a:1", "b:2"])
    assert (stored.worker_id, stored.note) == (None, "retry after Mishap")
    assert stored.started_at == job.started_at
    assert stored.errors[0]["worker"] == "b:2"


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("changes", [{}, {"counted": False}, {"delay": 60.0}])
def test_a_cancel_that_came_meanwhile_is_counted(
    own: OwnConnection, changes: dict[str, Any], batch: bool
) -> None:
    if batch:
        with workflow("of one") as flow:
            flow.add(tasks.add.s(1, 2))
        job_id = Job.objects.get().pk
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE pgjobs_job SET status = 'running', claim = 1, worker_id = %s WHERE id = %s",
                [make_worker(), job_id],
            )
    else:
        job_id = make_running_job().id
    cancel(job_id)
    send = batches.send_returns if batch else jobs.send_returns
    stored = give_back(own, get_job(job_id), send=send, note="retry after Mishap", **changes)
    assert (stored.status, stored.note) == ("cancelled", "")
    assert counted() == {"cancelled": 1}


def counted() -> Counter[str]:
    """Return what the statistics say of what ended."""
    found: Counter[str] = Counter()
    for row in Statistic.objects.values("successful", "failed", "cancelled", "retried"):
        found.update(row)
    return +found


def test_a_lost_claim_that_ends_as_a_cancel_is_counted(own: OwnConnection) -> None:
    job = make_running_job()
    cancel(job.id)
    release_unheld(own, job.worker_id, [])
    assert counted() == {"cancelled": 1}


def test_what_is_given_back_is_no_end(own: OwnConnection) -> None:
    give_back(own, make_running_job())
    job = make_running_job()
    release_unheld(own, job.worker_id, [])
    assert not Statistic.objects.exists()


def test_a_release_leaves_no_trace_of_the_attempt(own: OwnConnection) -> None:
    """S4.15, pg-boss 7dea410: what never ran burns no attempt."""
    job = make_running_job(attempts=2, worker_ids=["a:1", "b:2"])
    stored = give_back(own, job, counted=False, note="released at shutdown")
    assert (stored.status, stored.attempts, stored.worker_ids) == ("ready", 1, ["a:1"])
    assert stored.started_at == job.started_at


def test_a_job_whose_only_attempt_was_released_has_not_started(own: OwnConnection) -> None:
    stored = give_back(own, make_running_job(), counted=False)
    assert (stored.attempts, stored.worker_ids, stored.started_at) == (0, [], None)


def test_the_claim_rises_so_that_a_late_write_misses(own: OwnConnection) -> None:
    """Fencing."""
    job = make_running_job(claim=4)
    assert give_back(own, job).claim == 5


@pytest.mark.parametrize("delay", [None, 0.0])
def test_without_a_delay_the_job_can_be_claimed_at_once(
    own: OwnConnection, delay: float | None
) -> None:
    job = make_running_job()
    give_back(own, job, delay=delay)
    assert ids(claim(own, make_worker())) == [job.id]


def test_a_delay_counts_from_the_clock_of_the_server(own: OwnConnection) -> None:
    """S2.25, S4.11: retry_at."""
    stored = give_back(own, make_running_job(), delay=100.0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        [(now,)] = cursor.fetchall()
    assert (stored.due_at - now).total_seconds() == pytest.approx(100, abs=20)
    assert claim(own, make_worker()) == []


def test_progress_of_the_ended_attempt_is_forgotten(own: OwnConnection) -> None:
    assert give_back(own, make_running_job(progress={"done": 1})).progress is None


@pytest.mark.parametrize("counted", [True, False])
def test_a_job_that_somebody_asked_to_cancel_ends_instead(
    own: OwnConnection, counted: bool
) -> None:
    job = make_running_job(cancel_requested_at=sql.SQL("now()"))
    stored = give_back(own, job, counted=counted)
    assert stored.status == "cancelled"
    assert stored.finished_at is not None
    assert claim(own, make_worker()) == []


def test_jobs_of_a_claim_that_nobody_heard_of_come_back_uncounted(own: OwnConnection) -> None:
    """The answer to a claim was lost with its connection."""
    worker, other = make_worker(), make_worker()
    held, unheld = make_running_job(worker), make_running_job(worker)
    foreign = make_running_job(other)
    assert release_unheld(own, worker, [held.id]) == [unheld.id]
    stored = get_job(unheld.id)
    assert (stored.status, stored.attempts, stored.worker_ids) == ("ready", 0, [])
    assert (stored.claim, stored.worker_id, stored.started_at) == (unheld.claim + 1, None, None)
    assert get_job(held.id).status == get_job(foreign.id).status == "running"


def test_with_nothing_held_everything_of_the_worker_comes_back(own: OwnConnection) -> None:
    worker = make_worker()
    running = [make_running_job(worker).id for _ in range(3)]
    assert release_unheld(own, worker, []) == running


def test_a_job_that_nobody_heard_of_and_that_was_cancelled_meanwhile_ends(
    own: OwnConnection,
) -> None:
    worker = make_worker()
    job = make_running_job(worker, cancel_requested_at=sql.SQL("now()"))
    assert release_unheld(own, worker, []) == [job.id]
    stored = get_job(job.id)
    assert (stored.status, stored.note) == ("cancelled", "")


def test_so_many_interruptions_are_free_and_each_one_more_uses_up_an_attempt(
    own: OwnConnection,
) -> None:
    """A job that is interrupted at every shutdown and never gets to its end is not run for ever."""
    free = jobs.FREE_INTERRUPTIONS
    job = make_running_job(attempts=2, interruptions=free - 1, worker_ids=["a:1", "b:2"])
    stored = give_back(own, job, counted=False, interrupted=True)
    assert (stored.attempts, stored.interruptions, stored.worker_ids) == (1, free, ["a:1"])
    job = make_running_job(attempts=2, interruptions=free, worker_ids=["a:1", "b:2"])
    stored = give_back(own, job, counted=False, interrupted=True)
    assert (stored.attempts, stored.interruptions) == (2, free + 1)
    assert (stored.worker_ids, stored.started_at) == (["a:1", "b:2"], job.started_at)


@pytest.mark.parametrize("counted", [False, True])
def test_only_what_was_interrupted_counts_as_an_interruption(
    own: OwnConnection, counted: bool
) -> None:
    """A job that no slot has begun, a snooze or a retry, however often there was one before."""
    job = make_running_job(attempts=1, interruptions=1_000)
    stored = give_back(own, job, counted=counted)
    assert (stored.attempts, stored.interruptions) == (int(counted), 1_000)


def test_a_number_of_interruptions_at_its_bound_does_no_harm(own: OwnConnection) -> None:
    job = make_running_job(attempts=1, interruptions=2**31 - 1)
    assert give_back(own, job, counted=False, interrupted=True).interruptions == 2**31 - 1


def test_a_worker_that_leaves_writes_what_is_still_to_be_written(
    own: OwnConnection, worker: int
) -> None:
    """The pump may have ended because the database was away; the job would run again."""
    job = make_jobs(1)[0]
    [row] = claim(own, worker)
    state = WorkerState(make_options(), "test:1", worker)
    completer = Completer(state, Tally(), mock.Mock())
    attempt = make_attempt(row, state.options)
    attempt.started_at = time.monotonic()
    state.held[attempt.id] = attempt
    completer.add(attempt, success(7, 100))
    Farewell(state, completer).give_back_held(own)
    stored = get_job(job)
    assert (stored.status, stored.result) == ("successful", 7)
