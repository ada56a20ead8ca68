"""A tree whose failed or cancelled part is run again comes to what it would have come to."""

from __future__ import annotations

import pytest

from django_pgjobs import workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.helpers import execute

pytestmark = pytest.mark.django_db


def correct(batch: Batch) -> None:
    """Let the failed jobs of a batch succeed when they run again."""
    execute(
        "UPDATE pgjobs_job SET task_path = 'tests.tasks.add', args = '[2, 3]' "
        "WHERE batch_id = %s AND status = 'failed'",
        batch.pk,
    )


def state_of(batch: Batch) -> tuple[bool, bool]:
    """Return whether a tree is complete, and whether something in it has failed."""
    batch.refresh_from_db()
    return batch.tree_completed_at is not None, batch.tree_failed


def test_what_gathers_is_run_again_and_not_before_all_results_are_there() -> None:
    """W10: its former result is replaced."""
    with workflow("gathered again") as flow:
        flow.add(tasks.add.s(1, 1), tasks.fail_once.s())
        gathered = flow.gather(tasks.echo.s(), after_failure="run")
        after = flow.then(tasks.fail_once.s(), after_failure="run")
    run_jobs()
    assert Job.objects.get(batch_id=gathered.pk).result[0] == [[2]]
    correct(flow)
    correct(after)
    assert flow.retry() == 1
    assert Job.objects.get(batch_id=gathered.pk).status == "successful"
    run_jobs()
    assert Job.objects.get(batch_id=gathered.pk).result[0] == [[2, 5]]
    assert [job.attempts for job in Job.objects.filter(batch_id=after.pk)] == [1]
    assert list(gathered.results()) == [[[[2, 5]], {}]]
    assert state_of(flow) == (True, False)


def test_a_failed_job_of_a_whole_batch_is_requeued_if_nothing_before_it_is() -> None:
    with workflow("last failed") as flow:
        flow.add(tasks.add.s(1, 1))
        after = flow.then(tasks.fail_once.s())
    run_jobs()
    correct(after)
    assert flow.retry() == 1
    run_jobs()
    assert state_of(flow) == (True, False)
    with workflow("both failed for good") as flow:
        flow.add(tasks.fail_once.s())
        after = flow.then(tasks.fail_once.s(), after_failure="run")
    run_jobs()
    execute("DELETE FROM pgjobs_job WHERE batch_id = %s AND status = 'failed'", flow.pk)
    correct(after)
    assert flow.retry() == 1


def test_what_a_cancel_kept_from_being_made_is_made_when_it_is_taken_back() -> None:
    """W3: results that came while the step was cancelled, and the step at the end."""
    with workflow("taken back") as flow:
        each = flow.each(tasks.echo.s())
        last = flow.then(tasks.echo.s("end"))
        flow.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    for batch in (each, last):
        assert batch.cancel()
    run_jobs()
    assert each.counts().jobs == last.counts().jobs == 0
    assert state_of(flow) == (True, True)
    assert flow.retry(cancelled=True) == 0
    run_jobs()
    assert (each.counts().successful, last.counts().successful) == (2, 1)
    assert state_of(flow) == (True, False)


@pytest.mark.slow
def test_what_follows_a_cancelled_batch_is_not_run_though_it_has_no_jobs() -> None:
    with workflow("branch") as flow:
        flow.add(tasks.add.s(1, 1))
        left, right = flow.each(tasks.add.s(10)), flow.each(tasks.add.s(100))
        last = flow.join(left, right).gather(tasks.echo.s())
        flow.on_success(tasks.echo.s("success"))
        flow.on_failure(tasks.echo.s("failure"))
    assert left.cancel()
    run_jobs()
    assert (left.counts().jobs, last.counts().jobs) == (0, 0)
    assert [job.args for job in Job.objects.filter(batch_id=None)] == [[flow.pk, "failure"]]
    assert flow.retry(cancelled=True) == 0
    run_jobs()
    assert list(last.results()) == [[[[12], [102]], {}]]


def test_a_tree_whose_cancel_is_taken_back_is_complete_once_more_and_not_before() -> None:
    """W10: neither its owner nor what follows it ends while its jobs are still to run."""
    with workflow("once more") as flow:
        part = flow.batch("part")
        part.add(tasks.add.s(1, 1))
        part.seal()
        last = flow.then(tasks.echo.s("end"))
        flow.on_complete(tasks.echo.s("complete"))
        flow.on_success(tasks.echo.s("success"))
    assert part.cancel()
    run_jobs()
    assert flow.retry(cancelled=True) == 1
    run_jobs()
    assert state_of(flow) == (True, False)
    assert (flow.completions, last.counts()) == (2, (1, 1, 0, 0))
    said = Job.objects.filter(batch_id=None).order_by("pk")
    assert [job.args[1] for job in said] == ["complete", "complete", "success"]


def test_a_long_result_goes_on_where_a_cancel_has_stopped_it() -> None:
    with workflow("long") as flow:
        items = flow.each_item(tasks.echo.s(), skip_none=True)
        flow.add(tasks.hide_one.s(12_000))
    with pytest.raises(RuntimeError, match="at most 1 attempt"):
        run_jobs(limit=1)
    assert items.cancel()
    run_jobs()
    assert state_of(flow) == (True, True)
    assert items.counts() == (1, 0, 0, 1)
    assert flow.retry(cancelled=True) == 1
    run_jobs()
    assert items.counts() == (2, 2, 0, 0)
    assert state_of(flow) == (True, False)
