"""Workflows: the samples of the docs, each with what comes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_pgjobs import (
    BatchSealed,
    UnknownBatch,
    chain,
    current_batch,
    group,
    requeue,
    workflow,
)
from django_pgjobs.exceptions import JobError
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from django_pgjobs.workflows import reading
from tests import tasks
from tests.factories import make_job
from tests.models import Effect

pytestmark = pytest.mark.django_db


def results_of(path: str) -> list[Any]:
    """Return the results of the successful jobs of a task, in order."""
    found = Job.objects.filter(task_path=f"tests.tasks.{path}", status="successful").order_by("pk")
    return [job.result for job in found]


def args_of(path: str) -> list[Any]:
    """Return the positional arguments of the jobs of a task, in order."""
    return [job.args for job in Job.objects.filter(task_path=f"tests.tasks.{path}").order_by("pk")]


def counts_of(batch: Batch) -> tuple[int, int, int, int]:
    """Return its numbers: jobs, successful, failed, cancelled."""
    batch.refresh_from_db()
    return batch.jobs, batch.successful, batch.failed, batch.cancelled


def test_payroll() -> None:
    """S2.3, S2.9, S2.10, S2.14, S2.16, S2.27, S2.28: a job per result, a callback at the end."""
    with workflow("payroll") as pay:
        cheques = pay.each(tasks.add.s(1000))
        pay.on_complete(tasks.echo.s(month="2026-10"))
        pay.add_many(tasks.add, ({"a": number, "b": 0} for number in range(3)))
    assert run_jobs() == 7
    assert args_of("add")[3:] == [[0, 1000], [1, 1000], [2, 1000]]
    assert results_of("echo") == [[[pay.pk], {"month": "2026-10"}]]
    assert counts_of(pay) == counts_of(cheques) == (3, 3, 0, 0)
    assert pay.tree_completed_at and cheques.completed_at
    assert (pay.completions, cheques.completions) == (1, 1)
    assert pay.counts(tree=True) == (6, 6, 0, 0)
    assert pay.counts(tree=True).unfinished == 0
    # Of what nothing follows.
    assert list(pay.results()) == [1000, 1001, 1002]


def test_the_results_of_many_batches_take_few_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE", 4)
    with workflow("many") as flow:
        for number in range(10):
            part = flow.batch()
            part.add_many(tasks.add, [(number, 0)] * (number % 4))
            part.seal()
    run_jobs()
    wanted = [number for number in range(10) for _ in range(number % 4)]
    with CaptureQueriesContext(connection) as queries:
        assert list(flow.results()) == wanted
    # Three lots of batches, and 13 results by four.
    assert len(queries) <= 8


def test_a_chain_passes_each_result_on() -> None:
    """Celery: chain(add.s(2, 2), add.s(4), mul.s(8))()."""
    flow = chain(tasks.add.s(2, 2), tasks.add.s(4), tasks.add.s(8))
    assert run_jobs() == 3
    assert results_of("add") == [4, 8, 16]
    flow.refresh_from_db()
    assert flow.tree_completed_at


def test_a_group_runs_side_by_side() -> None:
    """Celery: group(add.s(i, i) for i in range(20))().get()."""
    flow = group(tasks.add.s(number, number) for number in range(20))
    with pytest.raises(RuntimeError, match="Call run_jobs"):
        flow.wait()
    assert run_jobs() == 20
    assert list(flow.wait(timeout=30).results()) == [2 * number for number in range(20)]
    assert counts_of(flow) == flow.counts() == (20, 20, 0, 0)


def test_a_chord_gathers_all_results_in_order() -> None:
    """Celery: chord((add.s(i, i) for i in range(10)), total.s())()."""
    group((tasks.add.s(number, number) for number in range(10)), gather=tasks.echo.s("sums"))
    assert run_jobs() == 11
    assert results_of("echo") == [[[[2 * number for number in range(10)], "sums"], {}]]


def test_a_fan_out_that_nobody_knew_before() -> None:
    """One job per element of a result, then all of theirs together."""
    with workflow("import") as pages:
        pages.add(tasks.echo.s(1, 2, 3))
        lines = pages.each_item(tasks.echo.s("page"))
        lines.gather(tasks.describe_context.s())
    run_jobs()
    # echo returned [[1, 2, 3], {}].
    assert sorted(map(str, args_of("echo")[1:])) == ["[[1, 2, 3], 'page']", "[{}, 'page']"]
    [report] = results_of("describe_context")
    assert report["value"] == [[[[1, 2, 3], "page"], {}], [[{}, "page"], {}]]


def test_stages_without_data() -> None:
    """Celery: chain(group(clean), store.si(), notify.si())."""
    with workflow("nightly") as night:
        night.add_many(tasks.add, [(1, 1), (2, 2)])
        night.then(tasks.add.s(5, 5)).then(tasks.echo.s("done"), after_failure="run")
    assert run_jobs() == 4
    assert results_of("add") == [2, 4, 10]
    assert results_of("echo") == [[["done"], {}]]


def test_a_batch_may_stay_open_between_requests() -> None:
    """S2.16, S2.29."""
    with workflow("upload", seal=False) as upload:
        upload.on_success(tasks.echo.s())
    run_jobs()
    later = Batch.objects.get(pk=upload.pk)
    later.add(tasks.add.s(1, 2))
    assert run_jobs() == 1
    assert not Batch.objects.get(pk=upload.pk).completed_at
    later.seal()
    assert later.sealed_at and later.completed_at and later.tree_completed_at
    assert run_jobs() == 1
    assert results_of("echo") == [[[upload.pk], {}]]


def test_what_is_sealed_without_jobs_is_complete_at_once() -> None:
    """S2.30."""
    with workflow("nothing") as flow:
        follower = flow.each(tasks.add.s(1))
        flow.on_success(tasks.echo.s())
    flow.refresh_from_db()
    follower.refresh_from_db()
    assert flow.completed_at and flow.tree_completed_at and follower.tree_completed_at
    assert run_jobs() == 1


def test_a_sealed_batch_takes_nothing_more_and_the_transaction_goes_on() -> None:
    with workflow("full") as flow:
        flow.add(tasks.add.s(1, 1))
    with pytest.raises(BatchSealed, match=f"batch {flow.pk} is sealed and takes no more jobs"):
        flow.add(tasks.add.s(2, 2))
    with pytest.raises(BatchSealed, match="nothing can follow it"):
        flow.then(tasks.add.s(2, 2))
    assert issubclass(BatchSealed, JobError) and issubclass(BatchSealed, ValueError)
    flow.seal()
    assert run_jobs() == 1


def test_an_unknown_batch_is_told_of() -> None:
    with pytest.raises(UnknownBatch, match="batch 999999999 does not exist"):
        Batch(pk=999999999).add(tasks.add.s(1, 1))
    with pytest.raises(UnknownBatch):
        Batch(pk=999999999).seal()


def test_a_running_job_adds_to_its_own_sealed_batch() -> None:
    """S2.3: nested jobs; a crawler."""
    with workflow("crawl") as flow:
        flow.add(tasks.crawl.s(3))
        flow.on_complete(tasks.echo.s())
    assert run_jobs() == 5
    assert counts_of(flow) == (4, 4, 0, 0)
    assert flow.completions == 1


def test_a_part_keeps_its_owner_open() -> None:
    """S2.11."""
    with workflow("orders") as flow:
        flow.add(tasks.split_order.s(2))
        flow.then(tasks.echo.s("all"))
    run_jobs()
    part = Batch.objects.get(name="order")
    assert (part.parent_id, part.root_id, part.flow_id) == (flow.pk, flow.pk, part.pk)
    assert counts_of(part) == (2, 2, 0, 0)
    flow.refresh_from_db()
    assert part.tree_completed_at <= flow.completed_at
    assert results_of("echo") == [[["all"], {}]]


def test_the_end_of_its_block_seals_a_part() -> None:
    with workflow("year") as flow:
        for month in range(2):
            with flow.batch("month") as part:
                part.add(tasks.add.s(month, 1))
                part.gather(tasks.echo.s())
    run_jobs()
    flow.refresh_from_db()
    assert flow.tree_completed_at
    assert results_of("echo") == [[[[1]], {}], [[[2]], {}]]


def test_an_exception_leaves_a_part_open() -> None:
    """It may have less than was meant for it."""
    with workflow("year") as flow:
        with pytest.raises(ZeroDivisionError), flow.batch("month") as part:
            raise ZeroDivisionError
    part.refresh_from_db()
    assert part.sealed_at is None


def test_current_batch_is_that_of_a_running_job() -> None:
    with pytest.raises(LookupError):
        current_batch()


def test_two_branches_are_joined() -> None:
    """A diamond: one batch waits for two others, and gets a list of each."""
    with workflow("diamond") as flow:
        flow.add(tasks.add.s(1, 1))
        left, right = flow.each(tasks.add.s(10)), flow.each(tasks.add.s(100))
        both = flow.join(left, right).gather(tasks.echo.s())
    run_jobs()
    assert results_of("echo") == [[[[12], [102]], {}]]
    assert counts_of(both) == (1, 1, 0, 0)


def test_a_failure_stops_what_follows_and_is_told() -> None:
    """S2.17: it counts as finished, and makes no job."""
    with workflow("some fail") as flow:
        each = flow.each(tasks.add.s(1))
        flow.gather(tasks.echo.s("never"))
        flow.then(tasks.echo.s("anyway"), after_failure="run")
        each.gather(tasks.echo.s("never either"))
        flow.on_success(tasks.echo.s("success"))
        flow.on_failure(tasks.echo.s("failure"))
        flow.add(tasks.add.s(1, 1), tasks.fail_once.s())
    run_jobs()
    assert counts_of(flow) == (2, 1, 1, 0)
    assert counts_of(each) == (1, 1, 0, 0)
    assert sorted(map(str, results_of("echo"))) == [
        "[['anyway'], {}]",
        f"[[{flow.pk}, 'failure'], {{}}]",
    ]
    assert not Batch.objects.filter(root=flow, tree_completed_at=None).exists()


def test_a_job_that_is_tried_again_is_counted_once() -> None:
    """S2.24: each failure is kept in a list; the last one is the job's end."""
    with workflow("stubborn") as flow:
        flow.add(tasks.fail.s("again"), tasks.add.s(1, 1))
    run_jobs()
    assert counts_of(flow) == (2, 1, 1, 0)
    assert [error["message"] for error in Job.objects.get(status="failed").errors] == ["again"] * 3
    assert flow.tree_completed_at and flow.completions == 1


def test_what_is_requeued_opens_the_tree_again() -> None:
    """W10: it is complete once more, and says so; what was not run for the failure is run now."""
    with workflow("repaired") as flow:
        each = flow.each(tasks.echo.s())
        each.gather(tasks.echo.s("all"))
        flow.on_complete(tasks.echo.s("complete"))
        flow.on_success(tasks.echo.s("success"))
        flow.add(tasks.add.s(1, 1), tasks.add.s(1, "x"))
    run_jobs()
    assert counts_of(flow) == (2, 1, 1, 0)
    failed = Job.objects.get(status="failed")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET args = '[2, 3]' WHERE id = %s", [failed.pk])
    assert flow.retry() == 1
    flow.refresh_from_db()
    assert flow.completed_at is None and flow.tree_completed_at is None
    run_jobs()
    assert counts_of(flow) == (2, 2, 0, 0)
    assert flow.completions == 2 and flow.tree_completed_at
    assert sorted(map(str, results_of("echo"))) == sorted(
        [
            "[[2], {}]",
            "[[5], {}]",
            "[[[[[2], {}], [[5], {}]], 'all'], {}]",
            *[f"[[{flow.pk}, 'complete'], {{}}]"] * 2,
            f"[[{flow.pk}, 'success'], {{}}]",
        ]
    )


def test_a_job_that_is_requeued_opens_the_tree_once() -> None:
    """W10: its requeue and its end are counted together."""
    with workflow("requeued") as flow:
        each = flow.each(tasks.echo.s())
        flow.on_complete(tasks.echo.s("complete"))
        flow.add(tasks.add.s(1, 1), tasks.add.s(1, "x"))
    run_jobs()
    failed = Job.objects.get(status="failed")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET args = '[2, 3]' WHERE id = %s", [failed.pk])
    assert requeue(failed.pk)
    run_jobs()
    assert counts_of(flow) == counts_of(each) == (2, 2, 0, 0)
    assert flow.completions == 2 and flow.tree_completed_at
    assert len(results_of("echo")) == 4


def test_a_part_that_its_job_forgot_is_sealed_for_it() -> None:
    with workflow("forgetful") as flow:
        flow.add(tasks.forget_part.s())
    run_jobs()
    part = Batch.objects.get(name="forgotten")
    assert part.opener_id and part.tree_completed_at and part.jobs == 2
    flow.refresh_from_db()
    assert flow.tree_completed_at


def test_a_second_attempt_finds_all_that_the_first_has_opened() -> None:
    flow = group([tasks.plan_part.s()])
    run_jobs()
    part = Batch.objects.get(name="planned")
    # The step of each result, the end, and the call at the end of all.
    assert args_of("echo") == [[2], ["then"], [part.pk]]
    assert Batch.objects.filter(root=flow).count() == 5
    assert part.tree_completed_at and part.completions == 1


def test_a_step_may_begin_later_and_expire() -> None:
    with workflow("later") as flow:
        flow.add(tasks.add.s(1, 1))
        each = flow.each(tasks.echo.using(run_after=timedelta(hours=1)).s())
        last = flow.then(tasks.echo.using(expires=timedelta(hours=2)).s())
        flow.on_complete(tasks.echo.using(run_after=timedelta(hours=3)).s())
    run_jobs()
    made, begun = Job.objects.get(batch_id=each.pk), Job.objects.get(batch_id=last.pk)
    called = Job.objects.get(batch_id=None)

    def hours(job: Job, moment: datetime | None) -> float:
        assert moment is not None
        return round((moment - job.enqueued_at) / timedelta(hours=1), 2)

    assert hours(made, made.run_after) == 1
    assert hours(begun, begun.expires_at) == 2
    assert hours(called, called.run_after) == 3


def test_plain_sql_adds_to_an_open_batch_and_to_no_other() -> None:
    with workflow("plain", seal=False) as flow:
        pass
    make_job(batch_id=flow.pk)
    flow.seal()
    run_jobs()
    assert counts_of(flow) == (1, 1, 0, 0)


def test_a_hidden_none_makes_no_job() -> None:
    with workflow("nones") as flow:
        every = flow.each(tasks.echo.s())
        some = flow.each(tasks.echo.s(), skip_none=True)
        flow.add(tasks.sleep_for.s(0), tasks.add.s(1, 1))
    run_jobs()
    assert (counts_of(every)[0], counts_of(some)[0]) == (2, 1)


def test_a_job_per_row() -> None:
    """From a QuerySet, in one statement."""
    Effect.objects.bulk_create(Effect(key=f"key {number}") for number in range(3))
    with workflow("rows") as flow:
        count = flow.add_from(tasks.add, Effect.objects.filter(key__gt="key 0"), a=F("pk"), b=1)
        made = flow.each(tasks.echo.s())
        assert flow.add_from(tasks.keyed, Effect.objects.all(), number=F("pk")) == 3
    assert count == 2
    run_jobs()
    assert counts_of(flow) == counts_of(made) == (5, 5, 0, 0)
    with pytest.raises(BatchSealed):
        flow.add_from(tasks.add, Effect.objects.all(), a=F("pk"), b=1)
