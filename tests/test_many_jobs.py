"""Cancel, requeue and reschedule all jobs that a QuerySet finds."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber
from django.template import Context, Template
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgjobs import JobError, workflow
from django_pgjobs.control import changing, many
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.aliases import extra_alias
from tests.factories import count_jobs, get_job, make_job, make_jobs, make_running_job
from tests.helpers import connect
from tests.models import Effect
from tests.test_client import make_finished_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page be two jobs."""
    monkeypatch.setattr(many, "PAGE_JOBS", 2)


def test_a_cancel_is_for_what_waits_and_what_runs(small_pages: None) -> None:
    waiting = make_jobs(3, queue_name="mail")
    running = make_running_job(queue_name="mail").id
    finished = make_finished_job("failed", queue_name="mail", cancel_requested_at=None)
    other = make_job()
    assert Job.objects.filter(queue_name="mail").cancel() == 4
    assert {get_job(job_id).status for job_id in waiting} == {"cancelled"}
    assert get_job(running).status == "running"
    assert get_job(running).cancel_requested_at is not None
    assert (get_job(finished).status, get_job(other).status) == ("failed", "ready")


@pytest.mark.django_db(transaction=True)
def test_jobs_of_another_database_are_refused() -> None:
    """Their ids are those of other jobs here."""
    job_id = make_job()
    with extra_alias("other"), pytest.raises(ValueError, match="a QuerySet on 'other'"):
        Job.objects.using("other").filter(pk=job_id).cancel()
    assert get_job(job_id).status == "ready"
    assert Job.objects.using("default").filter(pk=job_id).cancel() == 1


def test_a_requeue_is_for_what_has_finished(small_pages: None) -> None:
    failed = [make_finished_job("failed", result=None) for _ in range(3)]
    waiting = make_job()
    assert Job.objects.filter(pk__in=[*failed, waiting]).requeue() == 3
    assert {(job.status, job.attempts, job.note) for job in map(get_job, failed)} == {
        ("ready", 0, "requeued")
    }
    assert get_job(waiting).note == ""


def test_a_requeue_at_a_time_and_a_reschedule() -> None:
    job_id = make_finished_job("failed", result=None)
    assert Job.objects.filter(pk=job_id).requeue(run_after=timedelta(hours=1)) == 1
    assert get_job(job_id).due_at > timezone.now() + timedelta(minutes=59)
    assert Job.objects.filter(pk=job_id).reschedule(None) == 1
    assert get_job(job_id).due_at is None
    assert Job.objects.filter(pk=job_id).reschedule(timedelta(hours=2)) == 1
    assert get_job(job_id).due_at > timezone.now() + timedelta(minutes=119)


def test_what_is_requeued_runs_again() -> None:
    tasks.fail_once.enqueue()
    run_jobs()
    assert Job.objects.filter(status="failed").requeue() == 1
    run_jobs()
    assert [len(job.errors) for job in Job.objects.filter(status="failed")] == [2]


def test_the_jobs_of_a_row_are_cancelled() -> None:
    user = User.objects.create(username="anna")
    mine = tasks.add.using(subject=user).enqueue(1, 2)
    other = tasks.add.enqueue(1, 2)
    assert Job.objects.for_subject(user).cancel() == 1
    assert (get_job(mine.id).status, get_job(other.id).status) == ("cancelled", "ready")


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_of_a_slice_only_what_is_in_it(count: int, small_pages: None) -> None:
    ids = make_jobs(3)
    changed = min(count, 3)
    assert Job.objects.order_by("-id")[:count].cancel() == changed
    assert [get_job(job_id).status for job_id in reversed(ids)] == [
        *["cancelled"] * changed,
        *["ready"] * (3 - changed),
    ]


NEWEST = Window(RowNumber(), partition_by=F("queue_name"), order_by=F("id").desc())


@pytest.mark.parametrize(
    "newest",
    [
        lambda: Job.objects.annotate(place=NEWEST).filter(place=1),
        lambda: Job.objects.order_by("queue_name", "-id").distinct("queue_name"),
    ],
    ids=["window", "distinct on"],
)
def test_a_job_that_another_one_keeps_out_is_left_alone(newest: Any) -> None:
    """The newest of a queue does not wait; the one before it is none of those."""
    before, _ended = make_job(queue_name="mail"), make_finished_job("failed", queue_name="mail")
    waiting = make_job()
    assert newest().cancel() == 1
    assert (get_job(before).status, get_job(waiting).status) == ("ready", "cancelled")


def test_the_jobs_of_a_union_are_changed() -> None:
    ids = [make_job(queue_name=name) for name in ("mail", "pdf", "other")]
    mail, pdf = (Job.objects.filter(queue_name=name) for name in ("mail", "pdf"))
    assert mail.union(pdf).cancel() == 2
    assert [get_job(job_id).status for job_id in ids] == ["cancelled", "cancelled", "ready"]


def test_what_is_no_job_is_refused_as_by_delete() -> None:
    """Groups of jobs with one each would come to be all jobs."""
    make_jobs(2)
    alone = Job.objects.values("queue_name").annotate(jobs=Count("pk")).filter(jobs=1)
    with pytest.raises(TypeError, match="expected jobs, got a QuerySet of values"):
        alone.cancel()
    assert count_jobs(status="ready") == 2


def test_a_job_that_several_rows_lead_to_counts_once() -> None:
    job_id = make_job()
    both = Job.objects.filter(pk=job_id).extra(tables=["pgjobs_worker"])
    make_running_job()
    make_running_job()
    assert len(both) == 2
    assert both.cancel() == 1


def test_jobs_that_come_meanwhile_are_left_alone(
    small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = make_jobs(3)
    cancelled: list[int] = []

    def enqueue_another(cursor: Any, page: list[int], **statuses: Any) -> Any:
        make_job()
        cancelled.extend(page)
        return changing.cancel_jobs(cursor, page, **statuses)

    assert many.change_all(Job.objects.all(), {"ready"}, enqueue_another) == 3
    assert cancelled == ids
    assert count_jobs(status="ready") == 2


def test_of_the_twins_of_one_unique_key_one_is_requeued() -> None:
    """It is no error that the others stay, and none that waits for a lock."""
    ids = [make_finished_job("failed", result=None, unique_key="k") for _ in range(3)]
    assert Job.objects.filter(pk__in=ids).requeue() == 1
    assert sorted(get_job(job_id).status for job_id in ids) == ["failed", "failed", "ready"]


def test_the_workflow_of_a_requeued_job_opens_again_at_once() -> None:
    with workflow("pay") as flow:
        flow.add(tasks.fail_once.s())
    run_jobs()
    flow.refresh_from_db()
    assert flow.tree_completed_at is not None
    assert Job.objects.filter(batch_id=flow.pk).requeue() == 1
    flow.refresh_from_db()
    assert flow.tree_completed_at is None
    run_jobs()
    flow.refresh_from_db()
    assert (flow.completions, flow.failed) == (2, 1)


def test_nothing_to_change_changes_nothing() -> None:
    make_finished_job("successful")
    with CaptureQueriesContext(connection) as queries:
        assert Job.objects.all().cancel() == 0
        assert Job.objects.none().requeue() == 0
    assert len(queries) == 1


@pytest.mark.django_db(transaction=True)
def test_a_page_is_a_transaction_and_in_a_transaction_all_are_one(small_pages: None) -> None:
    ids = make_jobs(3)
    with transaction.atomic():
        assert Job.objects.all().cancel() == 3
        transaction.set_rollback(True)
    assert {get_job(job_id).status for job_id in ids} == {"ready"}
    with CaptureQueriesContext(connection) as queries:
        assert Job.objects.all().cancel() == 3
    assert [query["sql"] for query in queries].count("BEGIN") == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("around", [transaction.atomic, nullcontext])
def test_all_but_those_that_are_locked_are_changed(
    around: Any, small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says so, and a transaction of the caller's goes on."""
    monkeypatch.setattr(many, "LOCKED_SECONDS", 0.05)
    ids = make_jobs(5)
    said = f"^1 job, such as {ids[1]}, could not be changed: locked by another transaction"
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [ids[1]])
        with around():
            with pytest.raises(JobError, match=said):
                Job.objects.all().cancel()
            Effect.objects.create(key="after")
    assert count_jobs(status="cancelled") == 4
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_job_that_is_locked_for_a_moment_is_changed_at_the_end(
    small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = make_jobs(5)
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [ids[1]])
        pages: list[list[int]] = []

        def note_page(cursor: Any, page: list[int], **statuses: Any) -> Any:
            pages.append(page)
            if len(pages) == 4:
                other.rollback()
            return changing.cancel_jobs(cursor, page, **statuses)

        assert many.change_all(Job.objects.all(), {"ready"}, note_page) == 5
    assert pages == [ids[:2], ids[2:4], ids[4:], [ids[1]]]


def test_a_wrong_time_is_refused_before_anything_is_read() -> None:
    with CaptureQueriesContext(connection) as queries:
        with pytest.raises(TypeError, match="expected run_after to be a datetime or a timedelta"):
            Job.objects.all().requeue(run_after=5)
        with pytest.raises(TypeError, match=r"Write timedelta\(seconds=5\)"):
            Job.objects.all().reschedule(5)
    assert len(queries) == 0


def test_neither_the_manager_nor_a_template_changes_all_jobs() -> None:
    job_id = make_job()
    names = ("cancel", "requeue", "reschedule", "acancel", "arequeue", "areschedule")
    assert not any(hasattr(Job.objects, name) for name in names)
    Template("{{ jobs.cancel }}").render(Context({"jobs": Job.objects.all()}))
    assert get_job(job_id).status == "ready"


@pytest.mark.django_db(transaction=True)
def test_in_async_code_the_twins_do_it() -> None:
    make_jobs(2)
    failed = make_finished_job("failed", result=None)

    async def change() -> tuple[int, int, int]:
        with pytest.raises(SynchronousOnlyOperation, match=r"Write `await acancel\(...\)`"):
            Job.objects.all().cancel()
        return (
            await Job.objects.filter(status="ready").areschedule(timedelta(hours=1)),
            await Job.objects.filter(status="ready").acancel(),
            await Job.objects.filter(pk=failed).arequeue(),
        )

    assert async_to_sync(change)() == (2, 2, 1)
