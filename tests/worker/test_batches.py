"""Batches in a whole worker: counted in the turn that finishes their jobs, or found later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_pgjobs import (
    UnknownBatch,
    cancel,
    chain,
    group,
    requeue,
    workflow,
)
from django_pgjobs.exceptions import JobError
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batches
from django_pgjobs.queries.batches import Settled
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.notifications import BATCHES
from django_pgjobs.sql import load
from django_pgjobs.worker.running.outcome import Kind, Outcome
from tests import tasks
from tests.factories import count_jobs, make_job, make_running_job
from tests.helpers import execute, wait_until
from tests.worker.support import ThreadedWorker, make_attempt_of, write

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def open_batch(jobs: int = 0) -> Batch:
    """Return a batch that is not sealed, with so many plain jobs."""
    with workflow("test", seal=False) as flow:
        flow.add_many(tasks.add, [(1, 1)] * jobs)
    return flow


def changes() -> int:
    """Return the number of changes that nobody has counted."""
    [(count,)] = execute("SELECT count(*) FROM pgjobs_batch_change")
    return int(count)


def settle(own: OwnConnection, *batch_ids: int, levels: int = 1000) -> list[Settled]:
    """Settle batches as the pump does."""
    [rows] = own.round_trip([partial(batches.send_settlement, ids=batch_ids, levels=levels)])
    return [Settled._make(row) for row in rows]


def finish(own: OwnConnection, batch: Batch, kind: Kind = Kind.DONE, **columns: Any) -> int:
    """Finish a job of a batch, which runs already, without settling; return its id."""
    running = make_running_job(batch_id=batch.pk, **columns)
    attempt = make_attempt_of(running.id, claim=running.claim, batch_id=batch.pk)
    write(own, (attempt, Outcome(kind, result="[1,null,3]" if kind is Kind.DONE else "")))
    return int(running.id)


# A worker


@pytest.mark.slow
def test_a_worker_runs_a_tree(drain: Start) -> None:
    with workflow("tree") as flow:
        second = flow.each(tasks.add.s(1))
        third = second.each(tasks.add.s(1))
        third.gather(tasks.echo.s())
        flow.on_complete(tasks.echo.s("over"))
        flow.add_many(tasks.add, [(number, 0) for number in range(300)])
    drain()
    assert count_jobs(status="successful") == 902
    [gathered], told = [
        job.result[0] for job in Job.objects.filter(task_path="tests.tasks.echo").order_by("pk")
    ]
    assert sorted(gathered) == [number + 2 for number in range(300)]
    assert told == [flow.pk, "over"]
    assert not Batch.objects.filter(tree_completed_at=None).exists()
    assert changes() == 0


@pytest.mark.slow
def test_a_drain_counts_what_is_left_first(drain: Start) -> None:
    """Somebody sealed a batch, and could not count it."""
    flow = open_batch()
    flow.on_success(tasks.add.s(1))
    execute("INSERT INTO pgjobs_batch_change (batch_id, seals) VALUES (%s, TRUE)", flow.pk)
    drain()
    assert count_jobs(status="successful") == 1


@pytest.mark.slow
def test_a_chain_goes_on_without_a_poll(start_thread: Start) -> None:
    """Ten steps: each is known as soon as the one before has ended."""
    worker = start_thread(poll_interval=3600.0)
    wait_until(lambda: worker.listens)
    chain(tasks.add.s(1, 1), *(tasks.add.s(1) for _ in range(9)))
    wait_until(lambda: count_jobs(status="successful") == 10)


@pytest.mark.slow
def test_an_atomic_task_is_counted_in_its_own_transaction(start_thread: Start) -> None:
    with workflow("atomic") as flow:
        flow.each(tasks.add_none.s())
        flow.add(tasks.record_atomic.s("key"))
        flow.on_complete(tasks.add.s(1))
    start_thread()
    wait_until(lambda: count_jobs(status="successful") == 3)
    flow.refresh_from_db()
    assert flow.tree_completed_at


@pytest.mark.slow
def test_cancelled_jobs_are_found_by_the_look(start_thread: Start) -> None:
    flow = open_batch()
    [job_id] = flow.add(tasks.add.using(queue_name="nobody").s(1, 1))
    flow.seal()
    flow.on_failure(tasks.add.s(1))
    cancel(job_id)
    assert changes() == 1
    start_thread(queues=("default",), poll_interval=0.05)
    wait_until(lambda: count_jobs(status="successful") == 1)
    flow.refresh_from_db()
    assert (flow.jobs, flow.cancelled) == (1, 1)


@pytest.mark.parametrize("act", [cancel, requeue])
def test_workers_are_told_what_somebody_did_to_a_job(
    act: Callable[[str], bool], open_connection: Callable[..., psycopg.Connection]
) -> None:
    flow = open_batch()
    [job_id] = flow.add(tasks.add.s(1, 1))
    if act is requeue:
        execute("UPDATE pgjobs_job SET status = 'failed', finished_at = now()")
    listener = open_connection(autocommit=True)
    listener.execute("LISTEN pgjobs_control")
    assert act(job_id)
    [told] = listener.notifies(timeout=10, stop_after=1)
    assert told.payload == BATCHES


@pytest.mark.slow
def test_a_batch_that_somebody_holds_is_counted_later(
    start_thread: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """W5: and nobody waits for that."""
    flow = open_batch(1)
    flow.seal()
    holder = open_connection()
    with holder.transaction():
        holder.execute("SELECT FROM pgjobs_batch WHERE id = %s FOR UPDATE", [flow.pk])
        start_thread(poll_interval=0.1)
        wait_until(lambda: count_jobs(status="successful") == 1)
        plain = tasks.add.enqueue(1, 1)
        wait_until(lambda: count_jobs(id=int(plain.id), status="successful"))
    wait_until(lambda: Batch.objects.filter(pk=flow.pk).exclude(completed_at=None).exists())


@pytest.mark.slow
def test_a_batch_that_cannot_be_counted_is_marked_and_passed_over(start_thread: Start) -> None:
    bad, good = open_batch(1), open_batch(1)
    for flow in (bad, good):
        flow.on_complete(tasks.add.s(1))
        flow.seal()
    text = '[{"event": "complete", "queue_name": "", "task_path": "x"}]'
    execute("UPDATE pgjobs_batch SET callbacks = %s WHERE id = %s", text, bad.pk)
    start_thread(poll_interval=0.1)
    wait_until(lambda: count_jobs(status="successful") == 3)
    wait_until(lambda: Batch.objects.exclude(broken="").exists())
    bad.refresh_from_db()
    good.refresh_from_db()
    assert "pgjobs_queue_name" in bad.broken or "null value" in bad.broken
    assert good.tree_completed_at and not good.broken


# Statements


def test_each_way_to_end_is_counted(own: OwnConnection) -> None:
    flow = open_batch()
    for kind in (Kind.DONE, Kind.FAIL, Kind.CANCEL, Kind.RETRY, Kind.RELEASE):
        finish(own, flow, kind)
    settle(own, flow.pk)
    flow.refresh_from_db()
    assert (flow.jobs, flow.successful, flow.failed, flow.cancelled) == (0, 1, 1, 1)


def test_one_statement_streams_so_many_jobs_and_the_rest_in_pages(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_STREAMED", 4)
    with workflow("pages", seal=False) as flow:
        every = flow.each_item(tasks.add.s(1))
        some = flow.each_item(tasks.add.s(1), skip_none=True)
    first, second = finish(own, flow), finish(own, flow)
    # Three elements of each job for the first of both, and pages for the other.
    assert (count_jobs(batch_id=every.pk), count_jobs(batch_id=some.pk)) == (6, 0)
    flow.seal()
    some.refresh_from_db()
    assert some.sealed_at is None
    while own.round_trip([batches.send_changed])[0]:
        settle(own, *(row[0] for row in own.round_trip([batches.send_changed])[0]))
    assert (count_jobs(batch_id=every.pk), count_jobs(batch_id=some.pk)) == (6, 4)
    some.refresh_from_db()
    assert some.sealed_at and some.jobs == 4
    sources = Job.objects.filter(batch_id=some.pk).values_list("source_id", flat=True)
    assert sorted(sources) == sorted([first, first, second, second])


def test_the_larger_a_call_the_fewer_jobs_are_made_at_once(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a statement would take longer than it may, each time, or more memory than there is."""
    monkeypatch.setattr(batches, "MAX_STREAMED", 8)
    with workflow("large", seal=False) as flow:
        small = flow.each_item(tasks.echo.s())
        large = flow.each_item(tasks.echo.s("x" * 9_000))
    finish(own, flow)
    assert (count_jobs(batch_id=small.pk), count_jobs(batch_id=large.pk)) == (3, 0)
    for made in (1, 2, 3):
        execute("SELECT * FROM pgjobs_expand_page_v1(%s, 3)", [large.pk])
        assert count_jobs(batch_id=large.pk) == made


def test_a_settlement_goes_on_for_so_many_levels(own: OwnConnection) -> None:
    with workflow("levels", seal=False) as flow:
        second = flow.each(tasks.add.s(1))
    execute("INSERT INTO pgjobs_batch_change (batch_id, seals) VALUES (%s, TRUE)", flow.pk)
    settled = settle(own, flow.pk, levels=1)
    assert [each.batch_id for each in settled if each.is_missed] == [second.pk]
    settle(own, second.pk, levels=1)
    flow.refresh_from_db()
    assert flow.completed_at and not flow.tree_completed_at
    settle(own, flow.pk)
    flow.refresh_from_db()
    assert flow.tree_completed_at


@pytest.mark.slow
def test_a_tree_is_counted_without_rows_of_another(
    drain: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """S2.35."""
    with workflow("one") as flow:
        flow.each(tasks.add.s(1)).gather(tasks.echo.s())
        flow.on_complete(tasks.add.s(1))
        flow.add(tasks.add.s(1, 1))
    with workflow("other", seal=False) as other:
        other.each(tasks.add.s(1))
    holder = open_connection()
    with holder.transaction():
        holder.execute("SELECT FROM pgjobs_batch WHERE root_id = %s FOR UPDATE", [other.pk])
        drain()
    assert count_jobs(status="successful") == 4
    assert not Batch.objects.filter(root=flow, tree_completed_at=None).exists()


def test_changes_of_a_batch_that_is_gone_are_forgotten(own: OwnConnection) -> None:
    execute("INSERT INTO pgjobs_batch_change (batch_id) VALUES (17)")
    assert settle(own, 17) == []
    assert changes() == 0


@pytest.mark.slow
def test_a_job_of_a_batch_that_is_gone_runs(drain: Start) -> None:
    job_id = make_job(batch_id=17, source_id=0)
    drain()
    assert count_jobs(id=job_id, status="successful") == 1
    assert changes() == 0


def test_an_old_snapshot_decides_nothing(own: OwnConnection) -> None:
    """W9."""
    flow = open_batch()
    with connection.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            settled = batches.settle(cursor, [flow.pk])
        finally:
            cursor.execute("ROLLBACK")
    assert settled == [Settled(flow.pk, True, False, None, None)]


def test_plain_sql_cannot_add_to_a_sealed_batch() -> None:
    flow = open_batch(1)
    make_job(batch_id=flow.pk)
    flow.seal()
    with pytest.raises(Exception, match="is sealed, or does not exist"):
        make_job(batch_id=flow.pk)
    with pytest.raises(Exception, match="is sealed, or does not exist"):
        make_job(batch_id=17)
    flow.refresh_from_db()
    assert flow.jobs == 2


# Cancelling


@pytest.mark.slow
def test_running_jobs_of_a_cancelled_tree_are_asked_to_end(start_thread: Start) -> None:
    with workflow("running") as flow:
        flow.add(tasks.sleep_for.s(60), *(tasks.add.s(1, 1) for _ in range(3)))
        flow.on_failure(tasks.add.s(1))
    start_thread(concurrency=1, poll_interval=0.1)
    wait_until(lambda: count_jobs(batch_id=flow.pk, status="running"))
    flow.cancel()
    wait_until(lambda: Batch.objects.filter(pk=flow.pk).exclude(tree_completed_at=None).exists())
    flow.refresh_from_db()
    assert (flow.jobs, flow.cancelled) == (4, 4)
    wait_until(lambda: count_jobs(status="successful") == 1)


@pytest.mark.slow
def test_a_cancel_comes_to_a_page_of_jobs_at_a_time(own: OwnConnection) -> None:
    flow = open_batch(2_500)
    assert flow.cancel()
    assert count_jobs(batch_id=flow.pk, status="cancelled") == 1_000
    assert changes() > 0
    settle(own, flow.pk)
    settle(own, flow.pk)
    settle(own, flow.pk)
    flow.refresh_from_db()
    assert (flow.cancelled, flow.jobs) == (2_500, 2_500)
    assert flow.tree_completed_at and changes() == 0


def test_a_locked_job_of_a_cancelled_batch_is_come_back_to(
    own: OwnConnection, open_connection: Callable[..., psycopg.Connection]
) -> None:
    flow = open_batch(2)
    holder = open_connection()
    with holder.transaction():
        holder.execute(
            "SELECT FROM pgjobs_job_live WHERE batch_id = %s LIMIT 1 FOR UPDATE", [flow.pk]
        )
        flow.cancel()
        assert count_jobs(batch_id=flow.pk, status="cancelled") == 1
    # To look again, and to be sealed.
    assert changes() == 2
    settle(own, flow.pk)
    flow.refresh_from_db()
    assert flow.tree_completed_at


# Waiting


@pytest.mark.slow
def test_who_waits_gets_the_batch_complete(start_thread: Start) -> None:
    flow = group([tasks.add.s(1, 1)])
    start_thread()
    assert flow.wait(timeout=10) is flow
    assert flow.tree_completed_at


def test_who_waits_in_vain_is_told() -> None:
    flow = group([tasks.add.s(1, 1)])
    with pytest.raises(TimeoutError, match=f"batch {flow.pk} is not complete after 0 s"):
        flow.wait(timeout=0)
    with transaction.atomic(), pytest.raises(RuntimeError, match="no open transaction"):
        flow.wait()
    Batch.objects.filter(pk=flow.pk).update(broken="odd")
    with pytest.raises(JobError, match="cannot be counted: odd"):
        flow.wait()
    with pytest.raises(UnknownBatch):
        Batch(pk=10**9).wait()


def test_the_end_of_a_batch_reads_no_jobs(own: OwnConnection) -> None:
    """W11: neither those that have finished nor those that wait."""
    flow = open_batch(3)
    flow.on_complete(tasks.echo.s())
    flow.seal()
    execute("UPDATE pgjobs_job SET status = 'successful', finished_at = now()")
    execute("INSERT INTO pgjobs_batch_change (batch_id, successful) VALUES (%s, 3)", flow.pk)
    scans = (
        "SELECT sum(seq_scan + COALESCE(idx_scan, 0))::int FROM pg_stat_xact_user_tables"
        " WHERE relname IN ('pgjobs_job_live', 'pgjobs_job_finished')"
    )
    with transaction.atomic():
        before = execute(scans)
        execute("SELECT * FROM pgjobs_settle_v1(ARRAY[%s::bigint], 10)", flow.pk)
        assert execute(scans) == before
    flow.refresh_from_db()
    assert flow.tree_completed_at


def test_jobs_without_a_batch_are_finished_as_before() -> None:
    """W8: by statements that know of no batch."""
    for name in ("finish_successful", "finish_unsuccessful", "give_back_jobs", "enqueue_jobs"):
        assert "batch" not in load(name)
