"""Workflows are counted to their end, whatever else is there."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_pgjobs import JobError, group, requeue, workflow
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.aliases import Replica, extra_alias
from tests.helpers import execute

pytestmark = pytest.mark.django_db


def codes(batch: Batch) -> list[str]:
    return [reason.code for reason in batch.explain().reasons]


def test_beside_a_broken_batch_run_jobs_ends() -> None:
    with workflow("broken", seal=False) as flow:
        flow.add(tasks.add.s(1, 1))
    execute("UPDATE pgjobs_batch SET broken = 'odd' WHERE id = %s", flow.pk)
    assert run_jobs() == 1


def test_pages_of_a_batch_that_is_gone_go_too() -> None:
    execute("INSERT INTO pgjobs_batch_page (batch_id, source_id) VALUES (999999, 1)")
    assert run_jobs() == 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgjobs_batch_page")
        assert cursor.fetchone() == (0,)


@pytest.mark.slow
def test_pages_that_make_no_job_are_followed_by_the_others() -> None:
    with workflow("nothing") as flow:
        items = flow.each_item(tasks.echo.s(), skip_none=True)
        flow.add(tasks.hide_one.s(12_000))
    with pytest.raises(RuntimeError, match="at most 1 attempt"):
        run_jobs(limit=1)
    assert codes(items)[0] == "making"
    run_jobs()
    flow.refresh_from_db()
    assert flow.tree_completed_at and items.counts().jobs == 2


@pytest.mark.slow
def test_a_cancel_ends_all_jobs_page_by_page() -> None:
    with workflow("large") as flow:
        flow.add_many(tasks.add, [(1, 1)] * 2_100)
    assert flow.cancel()
    assert flow.counts().cancelled == 1_000
    assert codes(flow)[0] == "cancelling"
    # One may be claimed between two pages.
    ran = run_jobs()
    assert ran < 10
    assert flow.counts() == (2_100, ran, 0, 2_100 - ran)


def test_a_retry_of_nothing_leaves_a_cancel_alone() -> None:
    with workflow("cancelled") as flow:
        flow.add_many(tasks.add, [(1, 1)] * 1_500)
    flow.cancel()
    assert flow.retry() == 0
    ran = run_jobs()
    assert ran < 10
    flow.refresh_from_db()
    assert flow.cancelled == 1_500 - ran and flow.cancel_requested_at


@pytest.mark.django_db(transaction=True)
def test_what_failed_beside_a_batch_is_not_before_what_follows_it() -> None:
    """W10: the side batch is open again and complete with the other, in one count."""
    with workflow("beside") as flow:
        flow.each(tasks.fail_once.s())
        last = flow.gather(tasks.echo.s())
        flow.add(tasks.add.s(1, 1))
    run_jobs()
    before = Job.objects.get(batch_id=last.pk)
    assert before.status == "successful"
    # So that nobody counts before the job has ended again.
    with transaction.atomic():
        execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert requeue(Job.objects.get(batch_id=flow.pk).pk)
    run_jobs()
    assert Job.objects.get(batch_id=last.pk).finished_at > before.finished_at
    assert last.counts() == (1, 1, 0, 0)


@pytest.mark.slow
def test_a_job_that_an_open_workflow_needs_is_not_deleted() -> None:
    with workflow("needed") as flow:
        part = flow.batch("part")
        flow.gather(tasks.echo.s())
        flow.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    run_jobs()
    ids = list(Job.objects.filter(batch_id=flow.pk).values_list("pk", flat=True))
    with connection.cursor() as cursor:
        assert ACTIONS["delete"].apply(cursor, ids, {}).changed == []
    part.seal()
    run_jobs()
    assert Job.objects.get(task_path="tests.tasks.echo").result[0] == [[2, 4]]
    with connection.cursor() as cursor:
        assert ACTIONS["delete"].apply(cursor, ids, {}).changed == ids


def test_who_waits_for_a_workflow_is_told_of_a_broken_part() -> None:
    with workflow("waited for") as flow:
        other, part = flow.batch("other"), flow.batch("part")
        last = part.then(tasks.add.s(1, 1))
        other.add(tasks.add.s(1, 1))
        other.seal()
        part.add(tasks.add.s(1, 1))
        part.seal()
    execute("UPDATE pgjobs_batch SET broken = 'odd' WHERE id = ANY (%s)", [other.pk, last.pk])
    for waited_for, broken in ((flow, other), (other, other), (part, last), (last, last)):
        with pytest.raises(JobError, match=f"batch {broken.pk} cannot be counted: odd"):
            waited_for.wait(timeout=60)


@pytest.mark.django_db(transaction=True)
def test_rows_are_not_read_from_a_replica_that_lags_behind() -> None:
    with extra_alias("replica"), override_settings(DATABASE_ROUTERS=[Replica()]):
        with transaction.atomic():
            flow = group([tasks.add.s(1, 1)], gather=tasks.echo.s())
            with workflow("more", seal=False) as more:
                more.batch("part").each(tasks.echo.s())
            more.seal()
        assert flow.counts().jobs == 1
        assert flow.cancel()
