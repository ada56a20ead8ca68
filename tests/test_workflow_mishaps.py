"""What can go wrong with workflows: a failed job or an error that can be seen, and an end."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from django_pgjobs import BatchOpen, UnknownBatch, chain, group, workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import batch_care, batches
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.running import gathering
from tests import tasks
from tests.factories import make_job
from tests.helpers import execute
from tests.test_workflows import counts_of, results_of

pytestmark = pytest.mark.django_db


def errors_of(path: str) -> list[str]:
    """Return what the failed jobs of a task say."""
    failed = Job.objects.filter(task_path=f"tests.tasks.{path}", status="failed").order_by("pk")
    return [job.errors[-1]["message"] for job in failed]


def is_over(flow: Batch) -> bool:
    return not Batch.objects.filter(root=flow, tree_completed_at=None).exists()


# Deleting


def test_a_workflow_is_deleted_with_its_jobs() -> None:
    """S2.13."""
    with workflow("gone") as flow:
        flow.each(tasks.add.s(1)).gather(tasks.echo.s())
        part = flow.batch("part")
        part.add(tasks.fail_once.s())
        part.seal()
        flow.add_many(tasks.add, [(number, 0) for number in range(5)])
    other = group([tasks.add.s(1, 1)])
    run_jobs()
    # The five and what was made of each, the one that failed; nothing was gathered.
    assert flow.delete() == (15, {"pgjobs.Job": 11, "pgjobs.Batch": 4})
    assert list(Batch.objects.all()) == [other]
    assert Job.objects.count() == 1


def test_what_is_unfinished_is_not_deleted() -> None:
    """S2.13: it is to be cancelled first."""
    flow = chain(tasks.add.s(1, 1), tasks.add.s(1))
    with pytest.raises(BatchOpen, match=r"is not complete: cancel\(\) it first"):
        flow.delete()
    with pytest.raises(ValueError, match=f"Delete batch {flow.pk}"):
        Batch.objects.get(parent=flow).delete()
    flow.cancel()
    run_jobs()
    assert flow.delete()[0] == 3
    with pytest.raises(UnknownBatch):
        flow.delete()


def test_what_somebody_requeues_meanwhile_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = group([tasks.add.s(1, 1), tasks.add.s(2, 2)])
    run_jobs()
    # Requeued after the look at the workflow.
    execute("UPDATE pgjobs_job SET status = 'ready' WHERE id = (SELECT min(id) FROM pgjobs_job)")
    with pytest.raises(BatchOpen, match="Delete it again"):
        flow.delete()
    assert Job.objects.count() == 1
    assert Batch.objects.filter(pk=flow.pk).exists()


def test_what_a_retry_opens_again_is_not_deleted() -> None:
    """What follows a failed batch has no jobs yet, and is to get them."""
    with workflow("retried") as flow:
        flow.add(tasks.add.s(1, 1), tasks.fail_once.using(max_attempts=1).s())
        follower = flow.then(tasks.echo.s("then"))
    run_jobs()
    assert flow.retry() == 1
    with connection.cursor() as cursor:
        assert batch_care.delete_tree_jobs(cursor, [flow.pk], max_jobs=10) == []
        assert batch_care.delete_batches(cursor, [flow.pk], max_batches=10) == []
    run_jobs()
    assert Batch.objects.filter(pk=follower.pk).exists()


def test_what_is_requeued_and_not_counted_is_not_deleted() -> None:
    flow = group([tasks.add.s(1, 1), tasks.add.s(2, 2)])
    run_jobs()
    job = Job.objects.filter(batch_id=flow.pk).first()
    assert job is not None and job.requeue()
    # As if nobody had counted yet.
    execute("UPDATE pgjobs_batch SET tree_completed_at = now()")
    execute("INSERT INTO pgjobs_batch_change (batch_id, reopens) VALUES (%s, TRUE)", flow.pk)
    with pytest.raises(BatchOpen, match="Delete it again"):
        flow.delete()
    assert Job.objects.count() == 2


def test_a_queryset_deletes_workflows_as_each_of_them_does() -> None:
    flows = [group([tasks.add.s(1, 1)]) for _ in range(2)]
    run_jobs()
    still_open = group([tasks.add.s(1, 1)])
    with pytest.raises(BatchOpen):
        Batch.objects.filter(pk=still_open.pk).delete()
    deleted = Batch.objects.filter(pk__in=[flow.pk for flow in flows]).delete()
    assert deleted == (4, {"pgjobs.Job": 2, "pgjobs.Batch": 2})
    assert list(Batch.objects.all()) == [still_open]
    assert Job.objects.count() == 1


def test_saving_a_batch_keeps_what_was_counted_since() -> None:
    flow = group([tasks.add.s(1, 1)])
    run_jobs()
    flow.name, flow.metadata = "renamed", {"by": "hand"}
    flow.save()
    flow.refresh_from_db()
    assert (flow.name, flow.metadata) == ("renamed", {"by": "hand"})
    assert (flow.jobs, flow.successful) == (1, 1)
    assert flow.tree_completed_at is not None


# Bad input


def test_a_cycle_cannot_be_said() -> None:
    with workflow("cycle") as flow:
        first = flow.then(tasks.echo.s("first"))
        second = first.then(tasks.echo.s("second"))
    with pytest.raises(IntegrityError), transaction.atomic():
        execute("INSERT INTO pgjobs_batch_edge VALUES (%s, %s)", first.pk, second.pk)
    # A part is complete before its owner is: what follows the owner is no part of it.
    with workflow("circle") as flow:
        part = flow.batch("part")
        with pytest.raises(ValueError, match="which is elsewhere"):
            part.join(flow).then(tasks.echo.s())
        part.seal()
    run_jobs()
    assert is_over(flow)


def test_a_result_that_does_not_fit_what_follows_fails_there() -> None:
    """The signature is checked where the call is placed, the value by the task."""
    flow = chain(tasks.echo.s(1), tasks.add.s(1), tasks.echo.s())
    run_jobs()
    assert len(errors_of("add")) == 1
    assert is_over(flow)
    assert results_of("echo") == [[[1], {}]]


def test_results_that_are_too_many_to_gather_fail_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_BYTES", 5)
    # A page of large ones would be too much by itself.
    monkeypatch.setattr(batches, "page_of_results", None)
    with workflow("too many") as flow:
        flow.gather(tasks.echo.s())
        flow.on_failure(tasks.echo.s("failed"))
        flow.add_many(tasks.add, [(100, number) for number in range(3)])
    run_jobs()
    [message] = set(errors_of("echo"))
    assert "take more than 5 bytes as JSON" in message
    assert "Give it what follows with then()" in message
    assert is_over(flow)
    assert results_of("echo") == [[[flow.pk, "failed"], {}]]


def test_a_callback_that_is_gone_waits_where_it_can_be_seen() -> None:
    with workflow("orphan") as flow:
        flow.on_complete(tasks.echo.s())
        flow.then(tasks.echo.s("also gone"), after_failure="run")
    execute("UPDATE pgjobs_batch SET callbacks = replace(callbacks::text, 'echo', 'gone')::json")
    execute("UPDATE pgjobs_batch SET step = replace(step::text, 'echo', 'gone')::json")
    run_jobs()
    gone = Job.objects.filter(task_path="tests.tasks.gone")
    assert {job.status for job in gone} == {"failed"}
    assert all("gone" in job.errors[-1]["message"] for job in gone)
    assert is_over(flow)


def test_a_job_of_an_unknown_batch_is_refused_by_the_server() -> None:
    with pytest.raises(IntegrityError, match="is sealed, or does not exist"), transaction.atomic():
        make_job(batch_id=999999999)
    group([tasks.add.s(1, 1)])
    assert run_jobs() == 1


@pytest.mark.parametrize(
    "change",
    [
        "jobs = 17",
        "jobs = -3",
        "successful = -1",
        "failed = 12, on_failed_job = 'cancel workflow'",
        "open_predecessors = 9",
        "open_predecessors = -9",
        "open_parts = 4, open_children = 4",
        "open_children = -4",
        "failed_children = 2",
        "name = repeat('x', 512)",
        "sealed_at = NULL",
        "created_at = '0001-01-02'",
        "metadata = '[]'",
    ],
)
def test_a_row_changed_by_hand_stops_nobody_else(change: str) -> None:
    """Its own end may be wrong until the sweep; that of others is not."""
    flows = [chain(tasks.add.s(1, 1), tasks.add.s(1)) for _ in range(2)]
    execute(f"UPDATE pgjobs_batch SET {change} WHERE id = %s", flows[0].pk)
    run_jobs()
    assert is_over(flows[1])
    assert counts_of(flows[1]) == (1, 1, 0, 0)


@pytest.mark.parametrize("table", ["pgjobs_batch", "pgjobs_batch_change"])
def test_numbers_that_no_tree_can_have_are_refused(table: str) -> None:
    """Else adding them up would raise, on pages and where others are counted."""
    with workflow("numbers", seal=False) as flow:
        flow.add(tasks.add.s(1, 1))
    execute("INSERT INTO pgjobs_batch_change (batch_id) VALUES (%s)", flow.pk)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND atttypid IN ('bigint'::regtype, 'pgjobs_sum'::regtype) AND attname !~ 'id$'",
            [table],
        )
        columns = cursor.fetchall()
    assert len(columns) > 8
    for (column,) in columns:
        for value in (2**63 - 1, -(2**63), 10**12 + 1):
            with pytest.raises(IntegrityError, match="within_1e12"), transaction.atomic():
                execute(f"UPDATE {table} SET {column} = %s", value)
