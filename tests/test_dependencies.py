"""`task.using(after=[...])`: what is enqueued, what is refused, and what a person may do then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from django_pgjobs import acancel, cancel, requeue, reschedule
from django_pgjobs.compat import InvalidTask
from django_pgjobs.models import Dependency, Job
from django_pgjobs.queries import jobs
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.factories import count_jobs, get_job, make_job
from tests.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


def enqueue_after(*predecessors: Any, after_failure: str = "cancel") -> int:
    """Enqueue a job that waits for others; return its id."""
    waiting = tasks.add.using(after=predecessors, after_failure=after_failure)
    return int(waiting.enqueue(1, 2).id)


def edges() -> list[tuple[int, int, str]]:
    """Return (predecessor, job, after_failure) of all dependencies."""
    rows = Dependency.objects.order_by("job_id", "predecessor_id")
    return list(rows.values_list("predecessor_id", "job_id", "after_failure"))


def state(job_id: int) -> tuple[str, str | None, int]:
    """Return status, hold and the number of jobs waited for."""
    row = get_job(job_id)
    return row.status, row.hold, row.waits_for


WAITING = ("ready", "dependencies", 1)
HELD = ("ready", "predecessor failed", 1)
FREE = ("ready", None, 0)
CANCELLED = ("cancelled", None, 0)


# What is enqueued


def test_a_job_waits_for_each_unfinished_predecessor() -> None:
    """S1.15."""
    first, second = make_job(), make_job(status="running")
    job_id = enqueue_after(first, second)
    assert state(job_id) == ("ready", "dependencies", 2)
    assert edges() == [(first, job_id, "cancel"), (second, job_id, "cancel")]


@pytest.mark.parametrize(
    "given",
    [
        lambda result: result,
        lambda result: [result],
        lambda result: result.id,
        lambda result: int(result.id),
        lambda result: Job.objects.get(pk=result.id),
        lambda result: Job.objects.filter(pk=result.id),
        lambda result: (job for job in [result, result.id, int(result.id)]),
    ],
    ids=["result", "list", "text", "id", "job", "queryset", "the same three times"],
)
def test_predecessors_may_be_jobs_results_or_ids(given: Callable[[Any], Any]) -> None:
    result = tasks.add.enqueue(1, 2)
    waiting = tasks.add.using(after=given(result))
    assert waiting.after == (int(result.id),)
    assert state(int(waiting.enqueue(1, 2).id)) == WAITING


@pytest.mark.parametrize(
    "given", ["x", ["x"], 0, -1, [True], 2**63, [None], object(), [[1]], 1.5, Job(), "٣"]
)
def test_what_is_no_job_is_refused_where_it_is_given(given: Any) -> None:
    with pytest.raises(InvalidTask, match="option after: expected a job, its id"):
        tasks.add.using(after=given)


def test_an_unknown_after_failure_is_refused() -> None:
    with pytest.raises(InvalidTask, match="expected after_failure to be one of"):
        tasks.add.using(after=[1], after_failure="retry")


def test_a_declaration_cannot_name_predecessors() -> None:
    with pytest.raises(TypeError, match=r"use \.using\(after="):
        tasks.task(after=[1])


def test_a_predecessor_that_does_not_exist_is_refused_and_the_transaction_goes_on() -> None:
    """What can be refused is refused before anything is written."""
    job_id = make_job()
    with transaction.atomic():
        Effect.objects.create(key="before")
        message = r"expected after to name jobs that exist, got 998877, 998878\."
        with CaptureQueriesContext(connection) as sent, pytest.raises(ValueError, match=message):
            enqueue_after(job_id, 998_877, 998_878)
        assert len(sent) == 1
        Effect.objects.create(key="after")
    assert Effect.objects.count() == 2
    assert (count_jobs(), edges()) == (1, [])


def test_of_many_that_do_not_exist_some_are_named() -> None:
    with pytest.raises(ValueError, match=r"998810, \.\.\.") as caught:
        enqueue_after(*range(998_801, 998_901))
    assert "998811" not in str(caught.value)


def test_arguments_that_do_not_fit_leave_the_transaction_usable() -> None:
    predecessor = make_job()
    with transaction.atomic():
        with pytest.raises(TypeError, match="cannot be called"):
            tasks.add.using(after=predecessor).enqueue(1, 2, 3)
        Effect.objects.create(key="after")
    assert Effect.objects.count() == 1


def test_after_jobs_that_have_succeeded_there_is_nothing_to_wait_for() -> None:
    finished = make_job(status="successful")
    with CaptureQueriesContext(connection) as sent:
        job_id = enqueue_after(finished)
    assert (state(job_id), edges()) == (FREE, [])
    assert len(sent) == 2


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize(
    ("after_failure", "expected"), [("cancel", CANCELLED), ("run", FREE), ("hold", HELD)]
)
def test_a_predecessor_that_has_failed_already_has_its_effect_at_once(
    status: str, after_failure: str, expected: tuple[str, str | None, int]
) -> None:
    failed = make_job(status=status)
    with transaction.atomic():
        job_id = enqueue_after(failed, after_failure=after_failure)
        assert state(job_id) == expected
    assert state(job_id) == expected
    if expected == CANCELLED:
        row = get_job(job_id)
        assert row.note == f"cancelled: job {failed}, which it waited for, failed"
        assert row.finished_at is not None
    assert len(edges()) == (expected == HELD)


def test_a_rolled_back_enqueue_leaves_nothing() -> None:
    """Transactional enqueue."""
    predecessor = make_job()
    with transaction.atomic():
        enqueue_after(predecessor)
        transaction.set_rollback(True)
    assert (count_jobs(), edges()) == (1, [])


def test_a_rolled_back_savepoint_leaves_nothing() -> None:
    predecessor = make_job()
    with transaction.atomic():
        with transaction.atomic():
            enqueue_after(predecessor)
            transaction.set_rollback(True)
        kept = enqueue_after(predecessor)
    assert edges() == [(predecessor, kept, "cancel")]


def test_it_costs_three_statements_and_no_savepoint_in_a_transaction() -> None:
    predecessor = make_job()
    with transaction.atomic(), CaptureQueriesContext(connection) as sent:
        enqueue_after(predecessor)
    assert [query["sql"].split()[0] for query in sent] == ["SELECT", "INSERT", "WITH"]


def test_outside_a_transaction_no_worker_sees_the_job_before_it_waits() -> None:
    predecessor = make_job()
    with CaptureQueriesContext(connection) as sent:
        enqueue_after(predecessor)
    words = [query["sql"].split()[0] for query in sent]
    assert words == ["SELECT", "BEGIN", "INSERT", "WITH", "COMMIT"]


def test_all_jobs_of_enqueue_many_wait_for_the_same_predecessors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django_pgjobs.enqueueing.inserting.ROWS_PER_INSERT", 2)
    first, second = make_job(), make_job()
    ids = tasks.add.using(after=[first, second]).enqueue_many([(n, n) for n in range(5)])
    assert {state(int(job_id)) for job_id in ids} == {("ready", "dependencies", 2)}
    assert len(edges()) == 10


def test_enqueue_many_of_nothing_after_something_is_nothing() -> None:
    assert tasks.add.using(after=make_job()).enqueue_many([]) == []


def test_enqueue_from_cannot_wait_and_says_what_can() -> None:
    with pytest.raises(TypeError, match=r"cannot wait .*Use enqueue_many\(\), in a batch add_many"):
        tasks.add.using(after=make_job()).enqueue_from(Effect.objects.all(), a=1, b=2)


def test_an_async_caller_waits_as_well() -> None:
    async def enqueue_and_cancel() -> int:
        first = await tasks.add.aenqueue(1, 2)
        second = await tasks.add.using(after=[first]).aenqueue(1, 2)
        assert await acancel(first)
        return int(second.id)

    assert state(async_to_sync(enqueue_and_cancel)()) == CANCELLED


def test_of_unique_jobs_those_that_are_new_wait() -> None:
    """A job that is met keeps what it waits for."""
    first, second = make_job(), make_job()
    unique = tasks.add.using(unique_key="{a}")
    met = unique.enqueue(1, 2)
    assert unique.using(after=first).enqueue(1, 2).id == met.id
    assert state(int(met.id)) == FREE
    ids = unique.using(after=[first, second]).enqueue_many([(1, 1), (2, 2), (2, 3)])
    assert [state(int(job_id)) for job_id in ids] == [FREE] + [("ready", "dependencies", 2)] * 2
    assert {job_id for _, job_id, _ in edges()} == {int(ids[1])}


@pytest.mark.parametrize("on_conflict", ["replace", "merge"])
def test_a_job_that_changes_another_cannot_wait(on_conflict: str) -> None:
    unique = tasks.add.using(unique_key="{a}", on_conflict=on_conflict)
    with pytest.raises(InvalidTask, match="after contradicts on_conflict"):
        unique.using(after=make_job())


def test_keys_and_a_time_go_with_dependencies() -> None:
    waiting = tasks.add.using(after=make_job(), concurrency_key="k")
    row = get_job(waiting.using(run_after=timedelta(days=1)).enqueue(1, 2).id)
    assert (row.hold, row.concurrency_key) == ("dependencies", "k")
    assert row.due_at is not None


class TestInsideATestCase(TestCase):
    """Nothing commits here, so the trigger of the commit has no part in it."""

    def test_run_jobs_runs_a_chain_in_order(self) -> None:
        first = tasks.record.enqueue("1")
        second = tasks.record.using(after=[first]).enqueue("2")
        tasks.record.using(after=[second]).enqueue("3")
        run_jobs()
        assert list(Effect.objects.order_by("pk").values_list("key", flat=True)) == ["1", "2", "3"]

    def test_run_jobs_cancels_what_waits_for_a_failure(self) -> None:
        failing = tasks.fail_once.enqueue()
        job_id = enqueue_after(failing)
        run_jobs()
        assert state(job_id) == CANCELLED


# What a person may do


def test_cancelling_a_waiting_job_forgets_what_it_waited_for() -> None:
    predecessor = make_job()
    job_id = enqueue_after(predecessor)
    assert cancel(job_id)
    assert (state(job_id), edges()) == (CANCELLED, [])


@pytest.mark.parametrize(
    ("after_failure", "expected"), [("cancel", CANCELLED), ("run", FREE), ("hold", HELD)]
)
def test_cancelling_a_predecessor_counts_as_its_failure(
    after_failure: str, expected: tuple[str, str | None, int]
) -> None:
    predecessor = make_job()
    job_id = enqueue_after(predecessor, after_failure=after_failure)
    with CaptureQueriesContext(connection) as sent:
        assert cancel(predecessor)
    assert len(sent) == 3  # between a savepoint and its release
    assert state(job_id) == expected


def test_a_cancel_that_is_rolled_back_cancels_nobody() -> None:
    predecessor = make_job()
    job_id = enqueue_after(predecessor)
    with transaction.atomic():
        assert cancel(predecessor)
        assert state(job_id) == CANCELLED
        transaction.set_rollback(True)
    assert (state(job_id), len(edges())) == (WAITING, 1)


def test_cancelling_goes_down_the_line_as_far_as_jobs_say_so() -> None:
    head = make_job()
    second = enqueue_after(head)
    third = enqueue_after(second)
    beside = enqueue_after(second, make_job())
    last = enqueue_after(third, after_failure="run")
    held = enqueue_after(third, after_failure="hold")
    assert cancel(head)
    assert [state(job) for job in (second, third, beside)] == [CANCELLED] * 3
    assert get_job(third).note == f"cancelled: job {second}, which it waited for, failed"
    assert (state(last), state(held)) == (FREE, HELD)
    assert edges() == [(third, held, "hold")]


def test_cancelling_a_job_together_with_one_that_waits_for_it() -> None:
    """Both statements delete their dependency, in one command."""
    first = make_job()
    second = enqueue_after(first)
    third = enqueue_after(first, second)
    with connection.cursor() as cursor:
        changed = jobs.cancel_jobs(cursor, [first, second])
    assert changed == {first: "ready", second: "ready"}
    assert {state(job) for job in (first, second, third)} == {CANCELLED}
    assert edges() == []


def test_requeueing_a_job_that_was_cancelled_for_a_failure_runs_it_without_waiting() -> None:
    predecessor = make_job()
    job_id = enqueue_after(predecessor)
    assert cancel(predecessor)
    assert requeue(job_id)
    assert state(job_id) == FREE


def test_rescheduling_a_waiting_job_keeps_it_waiting() -> None:
    predecessor = make_job()
    job_id = enqueue_after(predecessor)
    assert reschedule(job_id, None)
    assert (state(job_id), len(edges())) == (WAITING, 1)


def test_rescheduling_a_held_job_lets_it_run() -> None:
    predecessor = make_job()
    job_id = enqueue_after(predecessor, after_failure="hold")
    assert cancel(predecessor)
    assert state(job_id) == HELD
    assert reschedule(job_id, None)
    assert (state(job_id), edges()) == (FREE, [])


def test_rescheduling_a_held_job_leaves_it_waiting_for_those_that_have_not_finished() -> None:
    failed, unfinished = make_job(), make_job()
    job_id = enqueue_after(failed, unfinished, after_failure="hold")
    assert cancel(failed)
    assert state(job_id) == ("ready", "predecessor failed", 2)
    assert reschedule(job_id, None)
    assert state(job_id) == WAITING
    assert edges() == [(unfinished, job_id, "hold")]


def test_a_held_job_can_be_cancelled() -> None:
    failed = make_job(status="failed")
    job_id = enqueue_after(failed, after_failure="hold")
    assert cancel(job_id)
    assert (state(job_id), edges()) == (CANCELLED, [])


def test_plain_sql_can_let_jobs_wait_too() -> None:
    """docs/dependencies.md: both rows in one transaction."""
    predecessor = make_job()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "WITH job AS (INSERT INTO pgjobs_job (task_path, hold, waits_for)"
            " VALUES ('tests.tasks.add', 'dependencies', 1) RETURNING id)"
            " INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)"
            " SELECT %s, job.id, 'run' FROM job RETURNING job_id",
            [predecessor],
        )
        [(job_id,)] = cursor.fetchall()
    assert state(job_id) == WAITING
    assert cancel(predecessor)
    assert state(job_id) == FREE
