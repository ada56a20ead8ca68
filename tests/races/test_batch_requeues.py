"""Who requeues a job of a batch at the same time as others count, finish or requeue."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from django_pgjobs import requeue, workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batch_retries, batches
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.claiming.outcome_statements import writings
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests import tasks
from tests.factories import count_jobs
from tests.helpers import connect
from tests.races.support import open_transaction
from tests.races.test_batch_retries import settle_all
from tests.races.test_batches import InThread, OpenOwn, is_complete, run, turn
from tests.test_workflow_retry import correct, state_of
from tests.worker.support import claim, make_attempt_of
from tests.worker.test_batches import open_batch, settle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


def test_a_requeue_beside_the_end_of_its_batch(own: OwnConnection) -> None:
    """W10: it is noted, whoever counts first."""
    flow = open_batch()
    flow.on_complete(tasks.add.s(1))
    first, second = run(flow), run(flow)
    flow.seal()
    turn(own, first)
    with transaction.atomic():
        assert requeue(first.id)
        turn(own, second)
        assert is_complete(flow) is False or flow.jobs == 2
    settle(own, flow.pk)
    assert not is_complete(flow)
    assert (flow.jobs, flow.successful) == (2, 1)


def run_again(batch: Batch, own: OwnConnection, other: OwnConnection, worker: int) -> None:
    """Requeue the job of a batch and finish it while somebody holds the batch; then count both."""
    with open_transaction(own) as end:
        settle(own, batch.pk)
        assert requeue(Job.objects.get(batch_id=batch.pk))
        turn(other, *claim(other, worker))
        end("COMMIT")
    settle(other, batch.pk)
    run_jobs()


def completions() -> list[tuple[int, int, int]]:
    """Return how often each batch was complete, and how many parts and children it waits for."""
    found = Batch.objects.order_by("pk")
    return list(found.values_list("completions", "open_parts", "open_children"))


def test_a_requeue_that_is_counted_with_the_end_of_its_job(
    own: OwnConnection, open_own: OpenOwn, worker: int
) -> None:
    """W10: those that own and follow its batch are complete once more."""
    with workflow("race") as flow:
        part = flow.batch("part")
        inner = part.batch("inner")
        inner.add(tasks.add.s(1, 1))
        inner.seal()
        part.seal()
        flow.then(tasks.echo.s("then"))
        flow.on_complete(tasks.echo.s())
    run_jobs()
    run_again(inner, own, open_own(), worker)
    assert completions() == [(2, 0, 0)] * 4
    said = Job.objects.filter(task_path=tasks.echo.module_path).order_by("pk")
    # What follows it is run again, and is the same job.
    assert [job.args for job in said] == [["then"], [flow.pk], [flow.pk]]


@pytest.mark.slow
def test_a_requeue_of_what_follows_is_counted_with_the_end_of_its_job(
    own: OwnConnection, open_own: OpenOwn, worker: int
) -> None:
    """W10: the tree is complete once more; what its owner waits for was so all the time."""
    with workflow("race") as flow:
        flow.add(tasks.add.s(1, 1))
        each = flow.each(tasks.add.s(1))
        flow.then(tasks.echo.s("then"))
        flow.on_complete(tasks.echo.s())
    run_jobs()
    run_again(each, own, open_own(), worker)
    assert completions() == [(2, 0, 0), (2, 0, 0), (1, 0, 0)]
    said = Job.objects.filter(task_path=tasks.echo.module_path).order_by("pk")
    assert [job.args for job in said] == [["then"], [flow.pk], [flow.pk]]


def test_two_retries_at_the_same_time(in_thread: InThread) -> None:
    """Each job is requeued by one of them."""
    flow = open_batch(20)
    flow.cancel()
    barrier = threading.Barrier(2)

    def retry() -> int:
        barrier.wait(10)
        return Batch.objects.get(pk=flow.pk).retry(cancelled=True)

    threads = [in_thread(retry), in_thread(retry)]
    assert sum(thread.result() for thread in threads) == 20
    with connection.cursor() as cursor:
        batches.settle(cursor, [flow.pk])
    assert not is_complete(flow)
    assert (flow.jobs, flow.cancelled) == (20, 0)


@pytest.fixture
def replaced(own: OwnConnection, worker: int) -> tuple[Batch, Batch, Any]:
    """Return a workflow, a batch that follows it with `each()`, and a job that runs again.

    A cancel, by now taken back, has kept what was made of its result before; nothing is counted.
    """
    tasks.SEEN.clear()
    with workflow("kept") as flow:
        each = flow.each(tasks.seen.s())
        flow.add(tasks.add.s(1, 1))
    each.cancel()
    run_jobs()
    assert requeue(Job.objects.get(batch_id=flow.pk))
    [row] = claim(own, worker, 1)
    with transaction.atomic():
        # So that the retry counts nothing itself.
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        flow.retry(cancelled=True)
    return flow, each, row


def test_a_kept_result_that_is_replaced_beside_the_retry_is_made_once(
    own: OwnConnection, replaced: tuple[Batch, Batch, Any]
) -> None:
    flow, _each, row = replaced
    turn(own, row, settles=False)
    settle_all(own)
    run_jobs()
    assert len(tasks.SEEN) == 1
    assert state_of(flow) == (True, False)


def test_a_result_that_replaces_a_kept_one_which_is_taken_up_is_made(
    own: OwnConnection, open_own: OpenOwn, replaced: tuple[Batch, Batch, Any]
) -> None:
    """Who takes it up sees the job run, and who finishes the job sees that it is kept."""
    flow, each, row = replaced
    other = open_own()
    with open_transaction(own) as end:
        turn(own, row, settles=False)
        for _ in range(3):
            settle(other, each.pk)
        end("COMMIT")
    settle_all(own)
    run_jobs()
    assert len(tasks.SEEN) == 1
    assert state_of(flow) == (True, False)


def test_kept_results_do_not_wait_for_the_job_of_another_one(
    own: OwnConnection, worker: int
) -> None:
    with workflow("kept") as flow:
        each = flow.each(tasks.echo.s())
        flow.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    each.cancel()
    run_jobs()
    assert requeue(Job.objects.filter(batch_id=flow.pk).earliest("pk"))
    [row] = claim(own, worker, 1)
    flow.retry(cancelled=True)
    settle_all(own)
    assert [job.args for job in Job.objects.filter(batch_id=each.pk)] == [[4]]
    turn(own, row)
    settle_all(own)
    assert count_jobs(batch_id=each.pk) == 2


def test_a_kept_result_is_given_up_when_its_job_fails(
    own: OwnConnection, replaced: tuple[Batch, Batch, Any]
) -> None:
    flow, each, row = replaced
    settle_all(own)
    assert not is_complete(each)
    attempt = make_attempt_of(row.id, claim=row.claim, batch_id=flow.pk)
    own.round_trip([writing.send for writing in writings([(attempt, Outcome(Kind.FAIL))])])
    settle_all(own)
    assert (each.counts().jobs, each.broken) == (0, "")
    assert state_of(flow) == (True, True)


@pytest.mark.slow
def test_a_job_is_requeued_when_jobs_are_made_of_its_result(
    own: OwnConnection, open_own: OpenOwn, in_thread: InThread, worker: int
) -> None:
    """Not before: what it returns next would be lost together with what it has returned."""
    tasks.SEEN.clear()
    with workflow("kept") as flow:
        each = flow.each(tasks.seen.s())
        flow.add(tasks.add.s(1, 1))
    each.cancel()
    run_jobs()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        flow.retry(cancelled=True)
    settle(own, each.pk)
    other = open_own()
    with open_transaction(other) as end:
        settle(other, each.pk)
        requeuing = in_thread(lambda: requeue(Job.objects.get(batch_id=flow.pk)))
        requeuing.wait_until_executed("FROM pgjobs_job")
        assert not Job.objects.unfinished().filter(batch_id=flow.pk).exists()
        end("COMMIT")
    assert requeuing.result()
    run_jobs()
    assert len(tasks.SEEN) == 2
    assert state_of(flow) == (True, False)


def test_what_is_made_of_other_results_does_not_wait_for_a_requeue(
    own: OwnConnection, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction may stay open for as long as somebody likes."""
    monkeypatch.setattr(batches, "MAX_STREAMED", 2)
    followers = []
    for _ in range(2):
        with workflow("long") as flow:
            followers.append(flow.each_item(tasks.echo.s()))
            flow.add(tasks.add.s(1, 1))
        finish_with(own, claim(own, worker, 1), "[1,2,3]")
    with transaction.atomic():
        assert requeue(Job.objects.filter(status="successful").earliest("pk"))
        settle(own, *(each.pk for each in followers))
    assert [count_jobs(batch_id=each.pk) for each in followers] == [0, 3]


@pytest.mark.parametrize(("result", "count"), [("[4,5,6]", 3), ("[4]", 1), ("", 0)])
def test_a_result_that_replaces_half_of_one_is_made_wholly(
    own: OwnConnection, worker: int, monkeypatch: pytest.MonkeyPatch, result: str, count: int
) -> None:
    monkeypatch.setattr(batches, "MAX_STREAMED", 2)
    with workflow("long") as flow:
        items = flow.each_item(tasks.echo.s())
        flow.add(tasks.add.s(1, 1))
    finish_with(own, claim(own, worker, 1), "[1,2,3]")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgjobs_expand_page_v1(%s, 2)", [[items.pk]])
    assert count_jobs(batch_id=items.pk) == 2
    assert requeue(Job.objects.get(batch_id=flow.pk))
    finish_with(own, [row for row in claim(own, worker, 9) if row.batch_id == flow.pk], result)
    settle_all(own)
    made = Job.objects.filter(batch_id=items.pk).order_by("pk")[2:]
    assert [job.args for job in made] == [[number] for number in [4, 5, 6][:count]]
    items.refresh_from_db()
    assert items.jobs == 2 + count and items.sealed_at


def finish_with(own: OwnConnection, rows: list[Any], result: str) -> None:
    """Finish a job with this result, as JSON text."""
    [row] = rows
    attempt = make_attempt_of(row.id, claim=row.claim, batch_id=row.batch_id)
    outcome = Outcome(Kind.DONE, result=result)
    own.round_trip([writing.send for writing in writings([(attempt, outcome)])])


@pytest.mark.parametrize("skips_none", [False, True])
def test_of_a_kept_result_that_nothing_replaces_no_item_is_made(
    own: OwnConnection, worker: int, skips_none: bool
) -> None:
    with workflow("nothing") as flow:
        items = flow.each_item(tasks.echo.s(), skip_none=skips_none)
        flow.add(tasks.add.s(1, 1))
    items.cancel()
    finish_with(own, claim(own, worker, 1), "[1]")
    settle_all(own)
    assert requeue(Job.objects.get(batch_id=flow.pk))
    finish_with(own, claim(own, worker, 1), "")
    flow.retry(cancelled=True)
    settle_all(own)
    assert count_jobs(batch_id=items.pk) == 0
    assert state_of(flow) == (True, False)


def test_a_retry_that_waits_for_its_tree_holds_no_batch_of_it(in_thread: InThread) -> None:
    """Else two of them would wait for each other: here others have locked the job of one batch."""
    with workflow("retried by two") as flow:
        part, cut = flow.batch("part"), flow.batch("cut")
        part.add(tasks.fail_once.s())
        cut.add(tasks.add.s(1, 1))
        last = flow.gather(tasks.fail_once.s(), after_failure="run")
        for each in (part, cut):
            each.seal()
    cut.cancel()
    run_jobs()
    assert state_of(flow) == (True, True)
    with connect(autocommit=False) as other, connect(autocommit=False) as looking:
        other.execute(
            "SELECT FROM pgjobs_job_finished WHERE batch_id = %s AND status = 'failed' FOR UPDATE",
            [part.pk],
        )
        other.execute("SELECT FROM pgjobs_batch WHERE id = %s FOR NO KEY UPDATE", [flow.pk])
        retrying = in_thread(lambda: Batch.objects.get(pk=flow.pk).retry())
        retrying.wait_until_executed("FROM locked")
        looking.execute(
            "SELECT FROM pgjobs_batch WHERE id <> %s FOR NO KEY UPDATE NOWAIT", [flow.pk]
        )
    assert retrying.result() == 1
    assert Job.objects.get(batch_id=last.pk).status == "ready"


@pytest.mark.slow
def test_what_another_retry_has_let_succeed_is_not_run_again(
    in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks.SEEN.clear()
    with workflow("twice") as flow:
        flow.each(tasks.seen.s())
        flow.add(tasks.fail_once.s())
    run_jobs()
    correct(flow)
    look = batch_retries.list_unsuccessful

    def retry() -> None:
        assert Batch.objects.get(pk=flow.pk).retry() == 1
        run_jobs()

    def look_slowly(*args: Any, **options: Any) -> Any:
        found = look(*args, **options)
        monkeypatch.setattr(batch_retries, "list_unsuccessful", look)
        in_thread(retry).result()
        return found

    monkeypatch.setattr(batch_retries, "list_unsuccessful", look_slowly)
    assert flow.retry() == 0
    run_jobs()
    assert len(tasks.SEEN) == 1
    assert state_of(flow) == (True, False)
