"""Who cancels a batch at the same time as others add to it, open parts of it, or claim its jobs."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from django_pgjobs import cancel, workflow
from django_pgjobs.models import Batch
from django_pgjobs.queries import batches
from django_pgjobs.queries.connection import OwnConnection
from tests import tasks
from tests.factories import count_jobs, get_job
from tests.races.support import open_transaction
from tests.races.test_batches import InThread, OpenOwn, run, turn
from tests.worker.support import claim
from tests.worker.test_batches import changes, open_batch, settle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


def test_a_cancel_does_not_wait_for_who_adds(in_thread: InThread) -> None:
    """What is committed is cancelled at once, the rest as soon as it is."""
    flow = open_batch(2)
    other = Batch.objects.get(pk=flow.pk)
    added, goes_on = threading.Event(), threading.Event()

    def add() -> None:
        with transaction.atomic():
            other.add(tasks.add.s(2, 2))
            added.set()
            assert goes_on.wait(10)

    adder = in_thread(add)
    assert added.wait(10)
    assert flow.cancel()
    assert count_jobs(batch_id=flow.pk, status="cancelled") == 2
    assert flow.explain().reasons[0].code == "cancelling"
    goes_on.set()
    adder.result()
    with connection.cursor() as cursor:
        batches.settle(cursor, [flow.pk])
    flow.refresh_from_db()
    assert (flow.jobs, flow.cancelled) == (3, 3)
    assert flow.tree_completed_at


def test_a_job_that_has_added_can_be_cancelled_by_itself(in_thread: InThread) -> None:
    flow = open_batch()
    job = run(flow)
    # So that it is asked who adds: that locks the job.
    flow.seal()
    mine = Batch.objects.get(pk=flow.pk)
    mine.asking = batches.Asking(job.id, job.claim)
    with transaction.atomic():
        mine.add(tasks.add.s(1, 1))
        assert in_thread(lambda: cancel(job.id)).result() is True
        assert get_job(job.id).cancel_requested_at is not None


def test_a_running_job_that_has_added_is_asked_to_end(
    own: OwnConnection, in_thread: InThread
) -> None:
    """Its transaction, of an atomic task, has locked its own row and the batch."""
    flow = open_batch()
    job = run(flow)
    # So that it is asked who adds: that locks the job.
    flow.seal()
    mine = Batch.objects.get(pk=flow.pk)
    mine.asking = batches.Asking(job.id, job.claim)
    with transaction.atomic():
        mine.add(tasks.add.s(1, 1))
        canceller = in_thread(lambda: Batch.objects.get(pk=flow.pk).cancel())
        assert canceller.result() is True
        assert get_job(job.id).cancel_requested_at is not None


def test_what_is_made_beside_a_cancel_is_cancelled(open_own: OpenOwn) -> None:
    """The turn does not see the cancel, and the cancel not the job that the turn makes."""
    with workflow("crossed", seal=False) as flow:
        each = flow.each(tasks.add.s(1))
    job = run(flow)
    flow.seal()
    own, look = open_own(), open_own()
    with open_transaction(own) as end:
        turn(own, job, settles=False)
        flow.cancel()
        end("COMMIT")
    settle(look, flow.pk, each.pk)
    for batch in (flow, each):
        batch.refresh_from_db()
        assert batch.tree_completed_at and batch.cancel_requested_at
    assert (each.jobs, each.cancelled) == (1, 1)


def test_a_part_that_is_opened_beside_a_cancel_is_cancelled(in_thread: InThread) -> None:
    """A running job opens one and adds to it; the cancel does not see it."""
    flow = open_batch()
    job = run(flow)
    flow.seal()
    mine = Batch.objects.get(pk=flow.pk)
    mine.asking = batches.Asking(job.id, job.claim)
    opened, goes_on = threading.Event(), threading.Event()

    def open_and_add() -> int:
        with transaction.atomic():
            part = mine.batch("late")
            part.add(tasks.add.s(1, 1))
            opened.set()
            assert goes_on.wait(10)
        return int(part.pk)

    adder = in_thread(open_and_add)
    assert opened.wait(10)
    flow.cancel()
    goes_on.set()
    part = Batch.objects.get(pk=adder.result())
    with connection.cursor() as cursor:
        batches.settle(cursor, [flow.pk])
    part.refresh_from_db()
    assert part.cancel_requested_at is not None
    assert count_jobs(batch_id=part.pk, status="cancelled") == 1


def test_a_job_that_is_claimed_beside_a_cancel_is_asked_to_end(
    own: OwnConnection, worker: int
) -> None:
    flow = open_batch(1)
    with open_transaction(own) as end:
        [row] = claim(own, worker)
        flow.cancel()
        end("COMMIT")
    assert get_job(row.id).cancel_requested_at is None
    # To look again, and to be sealed.
    assert changes() == 2
    settle(own, flow.pk)
    assert get_job(row.id).cancel_requested_at is not None
    assert changes() == 0
