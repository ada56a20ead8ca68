"""Cancelling, while a worker is just writing the same row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from psycopg import sql

from django_pgjobs import JobError, cancel
from django_pgjobs.control import lifecycle
from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.helpers import wait_until_blocked
from tests.models import Effect
from tests.races.support import DjangoThread, open_transaction
from tests.worker.support import claim, ids

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

InThread = Callable[..., DjangoThread]
OpenOwn = Callable[[], OwnConnection]
LOOKED = "SELECT job.status"


def finish(own: OwnConnection, job: Any) -> list[int]:
    """Finish a running job; return the ids that were finished."""
    outcome = jobs.Success(job.id, job.claim, "[1]", 0.0, 0.0)
    [rows] = own.round_trip([lambda cursor: jobs.send_successes(cursor, [outcome])])
    return [row[0] for row in rows]


def give_back(own: OwnConnection, job: Any) -> list[int]:
    """Give a running job back, to be tried again."""
    outcome = jobs.Return(
        id=job.id, claim=job.claim, delay=None, counted=True, error="", note="", age=0, duration=0
    )
    [rows] = own.round_trip([lambda cursor: jobs.send_returns(cursor, [outcome])])
    return [row[0] for row in rows]


def cancel_in_transaction(job_id: int) -> bool:
    """Cancel inside a transaction that does other things before and after."""
    with transaction.atomic():
        Effect.objects.create(key="before")
        cancelled = cancel(job_id)
        Effect.objects.create(key="after")
    return cancelled


@pytest.mark.parametrize("call", [cancel, cancel_in_transaction])
def test_a_cancel_that_meets_a_finish_says_that_it_came_too_late(
    own: OwnConnection, in_thread: InThread, call: Callable[[int], bool]
) -> None:
    """To wait for the row would end in SQLSTATE 40001."""
    job = make_running_job()
    with open_transaction(own) as end:
        assert finish(own, job) == [job.id]
        canceller = in_thread(lambda: call(job.id))
        canceller.wait_until_executed(LOOKED)
        assert canceller.is_alive()
        end("COMMIT")
    assert canceller.result() is False
    stored = get_job(job.id)
    assert (stored.status, stored.cancel_requested_at) == ("successful", None)
    assert Effect.objects.count() == (2 if call is cancel_in_transaction else 0)


def test_a_cancel_that_meets_a_finish_which_is_rolled_back_asks_the_job_to_end(
    own: OwnConnection, in_thread: InThread
) -> None:
    job = make_running_job()
    with open_transaction(own) as end:
        finish(own, job)
        canceller = in_thread(lambda: cancel_in_transaction(job.id))
        canceller.wait_until_executed(LOOKED)
        end("ROLLBACK")
    assert canceller.result() is True
    stored = get_job(job.id)
    assert stored.status == "running"
    assert stored.cancel_requested_at is not None
    assert Effect.objects.count() == 2


def test_a_finish_that_meets_a_cancel_waits_for_it_and_stands(
    own: OwnConnection, in_thread: InThread
) -> None:
    """The request came too late, but the row was not moved: no error."""
    job = make_running_job()
    own.open()
    with transaction.atomic():
        assert cancel(job.id)
        finisher = in_thread(lambda: finish(own, job))
        wait_until_blocked(own.open())
    assert finisher.result() == [job.id]
    assert get_job(job.id).status == "successful"


@pytest.mark.parametrize(("how", "status"), [("commit", "cancelled"), ("rollback", "ready")])
def test_a_give_back_that_meets_a_cancel_heeds_it(
    own: OwnConnection, in_thread: InThread, how: str, status: str
) -> None:
    job = make_running_job()
    own.open()
    with transaction.atomic():
        assert cancel(job.id)
        worker = in_thread(lambda: give_back(own, job))
        wait_until_blocked(own.open())
        transaction.set_rollback(how == "rollback")
    assert worker.result() == [job.id]
    assert get_job(job.id).status == status


def test_a_claim_passes_over_a_job_that_is_being_cancelled(own: OwnConnection) -> None:
    job_id, other = make_job(), make_job()
    worker = make_worker()
    with transaction.atomic():
        assert cancel(job_id)
        assert ids(claim(own, worker)) == [other]
    assert get_job(job_id).status == "cancelled"
    assert claim(own, worker) == []


def test_a_cancel_that_is_rolled_back_leaves_the_job_to_be_claimed(own: OwnConnection) -> None:
    job_id, worker = make_job(), make_worker()
    with transaction.atomic():
        assert cancel(job_id)
        assert claim(own, worker) == []
        transaction.set_rollback(True)
    assert ids(claim(own, worker)) == [job_id]


@pytest.mark.parametrize(("how", "status"), [("COMMIT", "running"), ("ROLLBACK", "cancelled")])
def test_a_cancel_that_meets_a_claim_cancels_what_comes_of_it(
    own: OwnConnection, in_thread: InThread, how: str, status: str
) -> None:
    job_id = make_job()
    with open_transaction(own) as end:
        assert ids(claim(own, make_worker())) == [job_id]
        canceller = in_thread(lambda: cancel_in_transaction(job_id))
        canceller.wait_until_executed(LOOKED)
        end(how)
    assert canceller.result() is True
    stored = get_job(job_id)
    assert stored.status == status
    assert stored.cancel_requested_at is not None


@pytest.mark.parametrize(("make", "second"), [(make_job, False), (make_running_job, True)])
def test_of_two_cancels_at_once_the_second_sees_what_the_first_did(
    in_thread: InThread, make: Callable[[], Any], second: bool
) -> None:
    made = make()
    job_id = made if isinstance(made, int) else made.id
    with transaction.atomic():
        assert cancel(job_id)
        other = in_thread(lambda: cancel(job_id))
        other.wait_until_executed(LOOKED)
    assert other.result() is second


def test_a_cancel_gives_up_after_a_while_and_the_transaction_stays_usable(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "LOCKED_SECONDS", 0.05)
    job = make_running_job()
    with open_transaction(own), transaction.atomic():
        finish(own, job)
        Effect.objects.create(key="before")
        with pytest.raises(JobError, match="is locked by another transaction"):
            cancel(job.id)
        Effect.objects.create(key="after")
    assert Effect.objects.count() == 2


def test_a_cancel_that_meets_a_rescue_cancels_the_rescued_job(
    own: OwnConnection, in_thread: InThread
) -> None:
    job = make_running_job(make_worker(lease_seconds=-1))
    with open_transaction(own) as end:
        with own.cursor() as cursor:
            assert len(jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)) == 1
        canceller = in_thread(lambda: cancel(job.id))
        canceller.wait_until_executed(LOOKED)
        end("COMMIT")
    assert canceller.result() is True
    assert get_job(job.id).status == "cancelled"


def test_a_rescue_passes_over_a_job_that_is_being_cancelled_and_ends_it_later(
    own: OwnConnection,
) -> None:
    job = make_running_job(make_worker(lease_seconds=-1))
    with transaction.atomic():
        assert cancel(job.id)
        with own.cursor() as cursor:
            assert jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3) == []
    with own.cursor() as cursor:
        [rescued] = jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)
    assert rescued.status == get_job(job.id).status == "cancelled"


def test_a_promotion_passes_over_a_scheduled_job_that_is_being_cancelled(
    own: OwnConnection,
) -> None:
    job_id = make_job(due_at=sql.SQL("now() - interval '1 s'"))
    with transaction.atomic():
        assert cancel(job_id)
        [[(promoted, *_)]] = own.round_trip([lambda c: jobs.send_promotion(c, max_jobs=9)])
        assert promoted == 0
    assert get_job(job_id).status == "cancelled"
