"""Why a gather was not run: what the batch says, its page, and the job that failed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from django_pgjobs import workflow
from django_pgjobs.control.explain import explain
from django_pgjobs.models import Batch
from django_pgjobs.testing import run_jobs
from tests import tasks

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def test_a_gather_and_the_job_that_failed_say_why_it_was_not_run() -> None:
    with workflow("not run") as flow:
        job_id = flow.add(tasks.fail_once.s())[0]
        each = flow.each(tasks.add.s(1))
        gather = each.gather(tasks.echo.s())
        always = each.gather(tasks.echo.s(), after_failure="run")
        after = gather.then(tasks.echo.s())
    run_jobs()
    for batch, before in ((gather, each), (after, gather)):
        not_run, complete = batch.explain().reasons
        assert (not_run.code, not_run.refs, complete.code) == ("not_run", (before.pk,), "complete")
        assert str(not_run).endswith(f"Retry what failed or was cancelled in: {before.pk}")
    for batch in (flow, each, always):
        assert [reason.code for reason in batch.explain().reasons] == ["complete"]
    finished, not_run = explain(job_id).reasons
    assert (finished.code, not_run.code) == ("finished", "not_run")
    assert f"is not run: batch {gather.pk}, batch {after.pk}. Retry its batch: " in str(not_run)


def test_the_page_of_a_job_that_failed_says_what_was_not_run(admin_client: Client) -> None:
    with workflow("page") as flow:
        failing, fine = flow.add(tasks.fail_once.s(), tasks.add.s(1, 1))
        gather = flow.gather(tasks.echo.s())
    run_jobs()
    for job_id, is_said in ((failing, True), (fine, False)):
        page = admin_client.get(reverse("admin:pgjobs_job_change", args=[job_id]))
        assert (f"is not run: batch {gather.pk}." in page.content.decode()) is is_said


def test_a_finished_job_says_which_batches_of_its_workflow_are_not_sealed() -> None:
    with workflow("open", seal=False) as flow:
        part, other = flow.batch("part"), flow.batch("other")
        job_id = part.add(tasks.add.s(1, 1))[0]
        flow.join(part, other).gather(tasks.echo.s())
    run_jobs()
    finished, unsealed = explain(job_id).reasons
    assert (finished.code, unsealed.code, unsealed.refs) == ("finished", "unsealed", ())
    assert f"jobs come to batch {flow.pk}, batch {part.pk}, batch {other.pk} (not sealed)." in str(
        unsealed
    )
    assert f"manage.py jobs workflows seal {flow.pk}." in str(unsealed)
    flow.seal()
    part.seal()
    assert f"to batch {other.pk} (not sealed). Press Seal" in str(explain(job_id).reasons[1])
    other.seal()
    run_jobs()
    assert [reason.code for reason in explain(job_id).reasons] == ["finished"]


def test_a_finished_job_says_nothing_of_parts_that_are_sealed_by_themselves() -> None:
    with workflow("by itself") as flow:
        job_id = flow.add(tasks.forget_part.s(), tasks.add.using(run_after=HOUR).s(1, 1))[0]
    run_jobs(at_once=False)
    assert Batch.objects.get(name="forgotten").sealed_at is None
    assert [reason.code for reason in explain(job_id).reasons] == ["finished"]


def test_a_batch_that_cannot_end_well_says_so_before_it_ends() -> None:
    with workflow("early") as flow:
        part, other = flow.batch("part"), flow.batch("other")
        job_id = part.add(tasks.fail_once.s())[0]
        gather = flow.join(part, other).gather(tasks.echo.s())
        part.seal()
    run_jobs()
    assert [(each.code, each.refs) for each in gather.explain().reasons] == [
        ("not_run", (part.pk,)),
        ("follows", (other.pk,)),
    ]
    assert f"batch {gather.pk}." in str(explain(job_id).reasons[1])


def test_what_the_job_advises_lets_the_gather_run_after_a_cancel_too() -> None:
    """Requeued by itself, a job of a cancelled batch would be cancelled again."""
    with workflow("cancelled") as flow:
        job_id = flow.add(tasks.add.s(1, 1))[0]
        gather = flow.gather(tasks.echo.s())
    flow.cancel()
    run_jobs()
    assert "Retry its batch, with what was cancelled: " in str(explain(job_id).reasons[1])
    flow.retry(cancelled=True)
    run_jobs()
    assert gather.counts().successful == 1


def test_the_page_of_a_batch_that_was_not_run_says_why(admin_client: Client) -> None:
    with workflow("not run") as flow:
        flow.add(tasks.fail_once.s())
        gather = flow.gather(tasks.echo.s())
        part = flow.batch("fine")
        part.seal()
    run_jobs()

    def page_of(batch_id: int) -> str:
        address = reverse("admin:pgjobs_batch_change", args=[batch_id])
        return admin_client.get(address).content.decode()

    text = page_of(gather.pk)
    assert "Why was it not run?" in text
    link = f'href="{reverse("admin:pgjobs_batch_change", args=[flow.pk])}">#{flow.pk}</a>'
    assert f"Retry what failed or was cancelled in: <a {link}" in text
    assert "pgjobs-h-why" not in page_of(part.pk)
