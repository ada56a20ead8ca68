"""A cancel that is taken back: what it kept from being made is made, nothing else runs again."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgjobs import requeue, workflow
from django_pgjobs.exceptions import JobError
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.test_workflow_retry import correct, state_of

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture(autouse=True)
def forget() -> None:
    """Begin with no call remembered."""
    tasks.SEEN.clear()


def run_some(count: int) -> None:
    """Run so many attempts, of more that are to run."""
    with pytest.raises(RuntimeError):
        run_jobs(limit=count)


def told() -> list[Any]:
    """Return what was called at ends, in order."""
    return [job.args for job in Job.objects.filter(batch_id=None).order_by("pk")]


def test_a_step_that_was_successful_before_the_cancel_is_not_run_again() -> None:
    with workflow("nightly") as flow:
        flow.add(tasks.add.s(1, 1))
        charge = flow.then(tasks.seen.s("charge"))
        charge.then(tasks.seen.s("mail"))
    run_some(2)
    flow.cancel()
    run_jobs()
    assert flow.retry(cancelled=True) == 1
    run_jobs()
    assert tasks.SEEN == [("charge",), ("mail",)]
    assert state_of(flow) == (True, False)


def test_a_retry_after_cancel_workflow_runs_what_failed_and_nothing_else() -> None:
    with workflow("strict", on_failed_job="cancel workflow") as flow:
        flow.add(tasks.add.s(1, 1))
        lists = flow.gather(tasks.seen.s())
        mails = lists.each_item(tasks.seen.s("mail"))
        last = mails.each(tasks.fail_once.using(priority=-1).s())
    run_jobs()
    before = list(tasks.SEEN)
    correct(last)
    assert flow.retry() == 1
    run_jobs()
    assert before == tasks.SEEN
    assert (mails.counts().jobs, last.counts().jobs) == (1, 1)
    assert state_of(flow) == (True, False)


def test_kept_results_are_made_before_their_batch_is_complete() -> None:
    with workflow("kept") as flow:
        each = flow.each(tasks.echo.s())
        each.on_complete(tasks.echo.s("complete"))
        each.on_success(tasks.echo.s("success"))
        last = each.gather(tasks.seen.s())
        after = last.each(tasks.seen.s("after"))
        flow.add(tasks.add.s(1, 1))
    each.cancel()
    run_jobs()
    assert told() == [[each.pk, "complete"]]
    flow.retry(cancelled=True)
    run_jobs()
    each.refresh_from_db()
    assert each.completions == 2
    assert told() == [[each.pk, "complete"], [each.pk, "complete"], [each.pk, "success"]]
    assert tasks.SEEN[0] == ([[[2], {}]],)
    assert (last.counts().jobs, after.counts().jobs) == (1, 1)


def test_two_batches_that_keep_results_are_both_made() -> None:
    with workflow("two") as flow:
        for name in ("a", "b"):
            flow.each(tasks.seen.s(name)).on_success(tasks.echo.s(name))
        flow.add(tasks.add.s(1, 1))
    for each in Batch.objects.filter(parent=flow):
        each.cancel()
    run_jobs()
    flow.retry(cancelled=True)
    run_jobs()
    assert sorted(args[1] for args in told()) == ["a", "b"]


def test_what_gathers_does_not_begin_beside_the_retry_of_what_it_gathers() -> None:
    with workflow("gathered") as flow:
        flow.add(tasks.add.s(1, 1), tasks.fail_once.s())
        gathered = flow.gather(tasks.echo.s(), after_failure="run")
    gathered.cancel()
    run_jobs()
    correct(flow)
    assert flow.retry(cancelled=True) == 1
    assert gathered.counts().jobs == 0
    run_jobs()
    assert list(gathered.results()) == [[[[2, 5]], {}]]
    assert gathered.counts().jobs == 1


def test_what_has_gathered_other_results_before_the_cancel_gathers_again() -> None:
    with workflow("gathers") as flow:
        flow.add(tasks.add.s(1, 1))
        gathered = flow.gather(tasks.echo.s())
        gathered.each(tasks.seen.s())
    run_some(2)
    gathered.cancel()
    run_jobs()
    change_result(flow)
    run_jobs()
    assert flow.retry(cancelled=True) == 1
    run_jobs()
    assert list(Job.objects.filter(batch_id=gathered.pk).values_list("result", flat=True)) == [
        [[[20]], {}]
    ]
    assert state_of(flow) == (True, False)


def change_result(flow: Batch) -> None:
    """Let the first job of a batch run again, to another result."""
    job = Job.objects.filter(batch_id=flow.pk).earliest("pk")
    Job.objects.filter(pk=job.pk).update(args=[10, 10])
    assert job.requeue()


def test_the_part_of_a_cancelled_tree_is_not_run_again_by_itself() -> None:
    with workflow("cancelled") as flow:
        part = flow.batch("part")
        part.add(tasks.add.s(1, 1))
        part.seal()
    flow.cancel()
    run_jobs()
    with pytest.raises(JobError, match=rf"batch {flow.pk} above it is cancelled. Retry that one"):
        part.retry(cancelled=True)
    assert flow.retry(cancelled=True) == 1
    run_jobs()
    assert part.counts() == (1, 1, 0, 0)


def test_a_job_that_has_left_a_part_open_can_succeed_when_it_is_retried() -> None:
    with workflow("left open") as flow:
        flow.add(tasks.plan_and_fail_once.s())
    run_jobs()
    part = Batch.objects.get(name="items")
    assert (flow.counts(), part.counts()) == ((1, 0, 1, 0), (1, 1, 0, 0))
    assert flow.retry() == 1
    run_jobs()
    assert (flow.counts(), part.counts()) == ((1, 1, 0, 0), (2, 2, 0, 0))
    assert state_of(flow) == (True, False)


def test_what_is_sealed_by_a_cancel_takes_jobs_of_its_opener_again() -> None:
    with workflow("left open") as flow:
        flow.add(tasks.plan_and_fail_once.s())
        flow.add(tasks.add.using(priority=-9).s(1, 1))
    run_some(1)
    flow.cancel()
    run_jobs()
    assert flow.retry(cancelled=True) == 3
    run_jobs()
    assert state_of(flow) == (True, False)


def test_a_job_of_a_cancelled_batch_is_not_requeued_by_itself() -> None:
    """It would be cancelled again, or not, as the workers come to it."""
    with workflow("nightly") as flow:
        flow.add_many(tasks.add, [(1, 1), (2, 2)])
    flow.cancel()
    run_jobs()
    job = Job.objects.filter(batch_id=flow.pk).order_by("pk")[0]
    with pytest.raises(JobError, match=f"its batch {flow.pk} was cancelled. Retry that."):
        requeue(job)
    with pytest.raises(JobError, match=f"1 job, such as .* its batch {flow.pk} was cancelled"):
        Job.objects.filter(pk=job.pk).requeue()
    assert flow.retry(cancelled=True) == 2
    run_jobs()
    assert state_of(flow) == (True, False)


def test_a_failed_job_that_cancelled_its_workflow_is_not_requeued_by_itself() -> None:
    with workflow("strict", on_failed_job="cancel workflow") as flow:
        flow.add(tasks.fail_once.s())
        flow.gather(tasks.seen.s())
    run_jobs()
    job = Job.objects.get(batch_id=flow.pk)
    assert job.status == "failed"
    with pytest.raises(JobError, match="was cancelled"):
        requeue(job)
