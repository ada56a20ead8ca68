"""Retries of trees beside workers, cancels and deletions: nothing is made twice, or of a part."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from django_pgjobs import workflow
from django_pgjobs.exceptions import BatchOpen, JobError, UnknownBatch
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batch_care, batches
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.helpers import connect
from tests.races.support import open_cancel, open_transaction
from tests.races.test_batches import InThread, turn
from tests.test_workflow_retry import correct, state_of
from tests.test_workflow_uncancel import change_result, run_some
from tests.worker.support import claim
from tests.worker.test_batches import settle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


@pytest.fixture(autouse=True)
def forget() -> None:
    """Begin with no call remembered."""
    tasks.SEEN.clear()


def settle_all(own: Any) -> None:
    """Count what is noted, as workers do, until nothing is."""
    for _ in range(20):
        with connection.cursor() as cursor:
            ids = batches.list_changed(cursor)
        if not ids:
            return
        settle(own, *ids)
    raise AssertionError("something is noted again and again")


def mixed(task: Any = tasks.seen, **options: Any) -> tuple[Batch, Batch]:
    """Return a workflow of a success and a failure, and the batch that gathers both."""
    with workflow("mixed") as flow:
        flow.add(tasks.add.s(1, 1), tasks.fail_once.s())
        gathered = flow.gather(task.s(), **options)
    return flow, gathered


def test_what_gathers_and_waits_to_run_is_left_to_run_once() -> None:
    flow, gathered = mixed(tasks.seen.using(priority=-50), after_failure="run")
    run_some(2)
    assert gathered.counts() == (1, 0, 0, 0)
    correct(flow)
    assert flow.retry() == 1
    run_jobs()
    assert tasks.SEEN == [([2, 5],)]
    assert gathered.counts() == (1, 1, 0, 0)


def test_what_gathers_and_runs_is_run_again_when_it_has_finished(own: Any, worker: int) -> None:
    with workflow("mixed") as flow:
        flow.add(tasks.add.s(1, 1), tasks.fail_once.s())
        gathered = flow.gather(tasks.seen.s(), after_failure="run")
        mailed = gathered.each(tasks.seen.s("mail"))
    run_some(2)
    [row] = claim(own, worker, 1)
    correct(flow)
    assert flow.retry() == 1
    run_jobs()
    assert gathered.counts() == (1, 0, 0, 0)
    turn(own, row)
    settle_all(own)
    run_jobs()
    assert gathered.counts() == (1, 1, 0, 0)
    assert ([2, 5],) in tasks.SEEN
    assert Job.objects.get(batch_id=gathered.pk).attempts == 1
    assert mailed.counts() == (2, 2, 0, 0)
    assert state_of(flow) == (True, False)


def test_what_gathers_and_runs_when_it_is_cancelled_is_run_again(own: Any, worker: int) -> None:
    with workflow("gathers") as flow:
        flow.add(tasks.add.s(1, 1))
        gathered = flow.gather(tasks.echo.s())
    run_some(1)
    [row] = claim(own, worker, 1)
    change_result(flow)
    run_jobs()
    gathered.cancel()
    turn(own, row)
    settle_all(own)
    flow.retry(cancelled=True)
    run_jobs()
    assert Job.objects.get(batch_id=gathered.pk).result == [[[20]], {}]
    assert state_of(flow) == (True, False)


@pytest.mark.slow
def test_what_gathers_and_is_being_finished_is_run_again(own: Any, worker: int) -> None:
    flow, gathered = mixed(after_failure="run")
    run_some(2)
    [row] = claim(own, worker, 1)
    correct(flow)
    with open_transaction(own) as end:
        turn(own, row, settles=False)
        flow.retry()
        run_jobs()
        end("COMMIT")
    settle_all(own)
    run_jobs()
    assert gathered.counts() == (1, 1, 0, 0)
    assert tasks.SEEN == [([2, 5],)]


def test_what_gathers_and_is_locked_is_run_again_later(own: Any, in_thread: InThread) -> None:
    flow, gathered = mixed(after_failure="run")
    run_jobs()
    correct(flow)
    flow.retry()
    locked, goes_on = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic():
            list(Job.objects.select_for_update().filter(batch_id=gathered.pk))
            locked.set()
            assert goes_on.wait(30)

    locker = in_thread(lock)
    assert locked.wait(30)
    run_jobs()
    assert gathered.counts() == (1, 1, 0, 0)
    assert not state_of(flow)[0]
    goes_on.set()
    locker.result()
    settle_all(own)
    run_jobs()
    assert tasks.SEEN[-1] == ([2, 5],)
    assert gathered.counts() == (1, 1, 0, 0)
    assert state_of(flow) == (True, False)


def test_a_retry_that_passes_over_a_batch_makes_no_second_job(own: Any) -> None:
    with workflow("passed over") as flow:
        flow.add(tasks.fail_once.s())
        middle = flow.then(tasks.add.s(3, 3), after_failure="run")
        gathered = middle.gather(tasks.fail_once.s())
    run_jobs()
    correct(flow)
    Job.objects.filter(batch_id=gathered.pk).update(task_path="tests.tasks.seen")
    with open_transaction(own) as end:
        settle(own, middle.pk)
        flow.retry()
        end("COMMIT")
    settle_all(own)
    run_jobs()
    assert gathered.counts() == (1, 1, 0, 0)
    assert tasks.SEEN[-1] == ([6],)


def test_a_result_that_is_noted_beside_the_retry_is_made(own: Any, worker: int) -> None:
    with workflow("kept") as flow:
        each = flow.each(tasks.seen.s())
        each.on_success(tasks.echo.s("success"))
        each.gather(tasks.seen.s("gathered"))
        flow.add(tasks.add.s(1, 1))
    each.cancel()
    [row] = claim(own, worker, 1)
    with open_transaction(own) as end:
        turn(own, row, settles=False)
        flow.retry(cancelled=True)
        end("COMMIT")
    settle_all(own)
    run_jobs()
    assert tasks.SEEN == [(None,), ([[None]], "gathered")]
    assert Job.objects.filter(batch_id=None).count() == 1


def cancel(flow: Batch) -> None:
    flow.cancel()


def cancel_in_transaction(flow: Batch) -> None:
    with transaction.atomic():
        flow.cancel()


@pytest.mark.parametrize("cancelling", [cancel, cancel_in_transaction])
def test_a_cancel_that_is_only_noted_is_taken_back_too(
    own: Any, cancelling: Callable[[Batch], None]
) -> None:
    with workflow("noted", seal=False) as flow:
        part = flow.batch("part")
        part.add(tasks.add.s(1, 1))
        part.seal()
        flow.add(tasks.add.s(2, 2))
        flow.seal()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgjobs_batch_change (batch_id) VALUES (%s)", [part.pk])
    with open_transaction(own) as end:
        settle(own, part.pk)
        cancelling(flow)
        end("COMMIT")
    flow.retry(cancelled=True)
    settle_all(own)
    run_jobs()
    assert state_of(flow) == (True, False)
    assert flow.counts(tree=True).cancelled == 0


def test_a_cancel_that_comes_too_late_changes_nothing() -> None:
    with workflow("late") as flow:
        flow.add(tasks.add.s(1, 1))
        flow.on_success(tasks.echo.s("success"))
    with open_cancel(flow.pk) as commit:
        run_jobs()
        assert state_of(flow) == (True, False)
        commit()
    run_jobs()
    assert state_of(flow) == (True, False)
    assert flow.cancel_requested_at is None


def test_a_tree_that_is_being_deleted_is_not_retried() -> None:
    flow, _gathered = mixed()
    run_jobs()
    with connection.cursor() as cursor:
        assert batch_care.begin_deletion(cursor, [flow.pk]) == [flow.pk]
        assert batch_care.delete_tree_jobs(cursor, [flow.pk], max_jobs=1)
    with pytest.raises(JobError, match=rf"workflow {flow.pk} is being deleted"):
        flow.retry()
    [left] = Job.objects.filter(batch_id=flow.pk)
    with pytest.raises(JobError, match=rf"the workflow of its batch {flow.pk} is being deleted"):
        left.requeue()
    flow.delete()
    assert not Batch.objects.exists()


def begin_deletion(flow: Batch) -> None:
    """As `flow.delete()` does, a page before its end."""
    with connection.cursor() as cursor:
        assert batch_care.begin_deletion(cursor, [flow.pk]) == [flow.pk]


def delete_wholly(flow: Batch) -> None:
    flow.delete()


@pytest.mark.parametrize(
    ("deleting", "error", "text"),
    [
        (begin_deletion, JobError, "is being deleted"),
        (delete_wholly, UnknownBatch, "does not exist"),
    ],
)
def test_a_retry_beside_the_begin_of_a_deletion_begins_nothing(
    in_thread: InThread, deleting: Callable[[Batch], None], error: type[Exception], text: str
) -> None:
    """Neither does it open again what a cancel has kept from being made."""
    with workflow("cancelled") as flow:
        flow.add(tasks.add.s(1, 1))
        flow.then(tasks.seen.s("then"), after_failure="run")
    flow.cancel()
    run_jobs()
    begun, goes_on = threading.Event(), threading.Event()

    def delete() -> None:
        with transaction.atomic():
            deleting(Batch.objects.get(pk=flow.pk))
            begun.set()
            assert goes_on.wait(30)

    deleter = in_thread(delete)
    assert begun.wait(30)
    retrying = in_thread(lambda: flow.retry(cancelled=True))
    retrying.wait_until_executed("FOR KEY SHARE")
    goes_on.set()
    deleter.result()
    with pytest.raises(error, match=text):
        retrying.result()
    run_jobs()
    assert not tasks.SEEN
    assert not Batch.objects.filter(tree_completed_at=None).exists()
    assert not Batch.objects.filter(cancel_requested_at=None).exists()


# In the second one a retry counts nothing itself.
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_tree_that_somebody_retries_is_not_deleted(
    own: Any, in_thread: InThread, is_pruned: bool, isolation: str
) -> None:
    flow, _gathered = mixed()
    run_jobs()
    correct(flow)
    retried, goes_on = threading.Event(), threading.Event()

    def retry() -> int:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            count = Batch.objects.get(pk=flow.pk).retry()
            retried.set()
            assert goes_on.wait(30)
            return count

    retrying = in_thread(retry)
    assert retried.wait(30)
    if is_pruned:
        with connection.cursor() as cursor:
            assert batch_care.begin_deletion(cursor, [flow.pk]) == []
    else:
        with pytest.raises(BatchOpen):
            flow.delete()
    goes_on.set()
    assert retrying.result() == 1
    settle_all(own)
    run_jobs()
    assert tasks.SEEN == [([2, 5],)]
    assert state_of(flow) == (True, False)


def test_a_deletion_that_meets_a_locked_job_leaves_nothing_to_retry(in_thread: InThread) -> None:
    flow, _gathered = mixed()
    run_jobs()
    locked, goes_on = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic():
            list(Job.objects.select_for_update().filter(batch_id=flow.pk, status="failed"))
            locked.set()
            assert goes_on.wait(30)

    locker = in_thread(lock)
    assert locked.wait(30)
    with pytest.raises(BatchOpen, match="Delete it again"):
        flow.delete()
    goes_on.set()
    locker.result()
    with pytest.raises(JobError, match="is being deleted"):
        flow.retry()
    flow.delete()
    assert not Job.objects.exists()


def test_a_running_job_is_not_asked_to_end_any_more(own: Any, worker: int) -> None:
    with workflow("asked") as flow:
        flow.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    [row] = claim(own, worker, 1)
    flow.cancel()
    assert Job.objects.get(pk=row.id).cancel_requested_at is not None
    flow.retry(cancelled=True)
    assert Job.objects.get(pk=row.id).cancel_requested_at is None


def test_a_running_job_that_is_locked_is_told_later_that_it_is_not_to_end(
    own: Any, worker: int
) -> None:
    with workflow("asked") as flow:
        flow.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    rows = claim(own, worker, 2)
    flow.cancel()
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR NO KEY UPDATE", [rows[0].id])
        assert flow.retry(cancelled=True) == 0
        # By itself, and later: that one is to end.
        Job.objects.get(pk=rows[1].id).cancel()
        settle(own, flow.pk)
        assert Job.objects.get(pk=rows[0].id).cancel_requested_at is not None
    settle_all(own)
    assert Job.objects.get(pk=rows[0].id).cancel_requested_at is None
    assert Job.objects.get(pk=rows[1].id).cancel_requested_at is not None
    flow.refresh_from_db()
    assert (flow.cancel_requested_at, flow.unasked_at) == (None, None)
