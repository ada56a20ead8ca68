"""What a person does to workflows: retries, cancels and deletes, each with a preview."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_pgjobs import workflow
from django_pgjobs.admin.bulk import asking
from django_pgjobs.models import Batch, BulkChange, Job
from django_pgjobs.signals import admin_action_performed
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.admin.bulk_support import confirm, log_in, said, text_of
from tests.admin.tenants import ONLY_OWN, make_person
from tests.admin.test_workflows import LIST, PAGE, read
from tests.factories import make_batch, make_job, make_jobs
from tests.test_admin import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

CANCEL = "admin:pgjobs_batch_cancel"


def button(client: Client, batch_id: int, label: str) -> str:
    """Return the address that a button of the page of a batch leads to."""
    text = read(client, PAGE, batch_id)
    found = re.search(rf'<a class="button" href="([^"]*)">{label}…</a>', text)
    assert found, label
    return unescape(found[1])


def labels(client: Client, batch_id: int) -> list[str]:
    """Return what the page of a batch offers."""
    return re.findall(r'<a class="button" href="[^"]*">([^<]*)…</a>', read(client, PAGE, batch_id))


def crumbs(client: Client, where: str) -> list[str]:
    """Return where the breadcrumbs of a page lead."""
    text = client.get(where).content.decode()
    found = re.search(r'class="breadcrumbs">(.*?)</(?:div|ol)>', text, re.DOTALL)
    assert found
    return re.findall(r'href="([^"]*)"', found[1])


def entries(verb: str) -> list[tuple[str, str]]:
    """Return whom the entries of the log are about, and what they say."""
    found = LogEntry.objects.filter(change_message__startswith=verb).order_by("pk")
    return [(entry.object_repr, entry.change_message) for entry in found]


@pytest.fixture
def payroll() -> Batch:
    """A workflow with a batch below it, each with a job that failed; it is complete."""
    with workflow("payroll") as pay:
        pay.each(tasks.fail_once.s(), on_failed_job="continue")
        part = pay.batch("part")
        part.add(tasks.fail_once.s())
        part.seal()
        pay.add(tasks.add.s(1, 1))
    run_jobs()
    pay.refresh_from_db()
    assert pay.tree_completed_at and pay.counts(tree=True) == (3, 1, 2, 0)
    return pay


# Retrying


def test_the_failed_part_is_previewed_and_retried(admin_client: Client, payroll: Batch) -> None:
    make_jobs(3, status="failed", finished_at=NOW)
    where = button(admin_client, payroll.pk, "Retry failed part")
    text = text_of(admin_client, where)
    assert "2 jobs." in text
    assert "tests.tasks.fail_once" in text
    assert f"Retry the failed part of {payroll}: are you sure?" in text
    assert "come once more" in text
    assert "A cancel of it is taken back" not in text
    assert "are left alone" not in text
    assert "Reset attempts" not in text
    assert crumbs(admin_client, where)[-2:] == [reverse(LIST), reverse(PAGE, args=[payroll.pk])]
    confirm(admin_client, where, reason="new release")
    assert "2 jobs requeued" in said(admin_client)
    assert Job.objects.filter(status="ready").count() == 2
    payroll.refresh_from_db()
    run_jobs()
    payroll.refresh_from_db()
    assert payroll.completions == 2
    assert (str(payroll), "requeue: 2 jobs: new release") in entries("requeue")


def test_what_was_cancelled_runs_again_if_that_is_asked_for(admin_client: Client) -> None:
    """Else its batch would cancel it again."""
    with workflow("second thoughts") as flow:
        flow.each(tasks.add.s(1))
        flow.add(tasks.add.s(1, 1))
    flow.cancel()
    run_jobs()
    assert labels(admin_client, flow.pk) == ["Retry failed and cancelled", "Delete"]
    where = button(admin_client, flow.pk, "Retry failed and cancelled")
    text = text_of(admin_client, where)
    assert f"Retry what failed or was cancelled in {flow}: are you sure?" in text
    assert "A cancel of it is taken back" in text
    confirm(admin_client, where)
    run_jobs()
    flow.refresh_from_db()
    assert flow.cancel_requested_at is None
    assert flow.counts(tree=True) == (2, 2, 0, 0)


def test_what_gathers_is_not_retried_with_what_it_follows(admin_client: Client) -> None:
    """It runs again when that is complete, once."""
    with workflow("gathers") as flow:
        flow.add(tasks.fail_once.s())
        last = flow.gather(tasks.fail_once.s(), after_failure="run")
    run_jobs()
    where = button(admin_client, flow.pk, "Retry failed part")
    assert "1 job." in text_of(admin_client, where)
    confirm(admin_client, where)
    assert Job.objects.get(batch_id=last.pk).status == "failed"
    run_jobs()
    flow.refresh_from_db()
    assert flow.completions == 2
    assert last.counts() == (1, 0, 1, 0)


def test_a_retry_of_a_part_leaves_the_rest_alone(admin_client: Client, payroll: Batch) -> None:
    part = Batch.objects.get(name="part")
    where = button(admin_client, part.pk, "Retry failed part")
    batches = [reverse(PAGE, args=[batch.pk]) for batch in (payroll, part)]
    assert crumbs(admin_client, where)[-2:] == batches
    confirm(admin_client, where)
    assert Job.objects.filter(status="ready").get().batch_id == part.pk


def test_a_large_retry_is_done_by_a_worker(
    admin_client: Client, payroll: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "INLINE_JOBS", 1)
    where = button(admin_client, payroll.pk, "Retry failed part")
    assert "/change/" in confirm(admin_client, where)["Location"]
    run_jobs()
    assert BulkChange.objects.get().changed == 2
    payroll.refresh_from_db()
    assert payroll.completions == 2


# Cancelling


def test_the_rest_is_previewed_and_cancelled(admin_client: Client) -> None:
    heard: list[dict[str, Any]] = []

    def hear(**values: Any) -> None:
        heard.append(values)

    with workflow("payroll") as pay:
        pay.each(tasks.add.s(1))
        pay.add(tasks.add.s(1, 1), tasks.add.s(1, 1))
    make_jobs(3)
    where = button(admin_client, pay.pk, "Cancel the rest")
    text = text_of(admin_client, where)
    assert f"Cancel the rest of payroll #{pay.pk}: are you sure?" in text
    assert "2 jobs." in text
    admin_action_performed.connect(hear)
    try:
        confirm(admin_client, where, reason="wrong month")
    finally:
        admin_action_performed.disconnect(hear)
    assert "The rest is being cancelled." in said(admin_client)
    run_jobs()
    pay.refresh_from_db()
    assert pay.tree_completed_at and pay.counts(tree=True) == (2, 0, 0, 2)
    assert entries("cancel") == [(str(pay), "cancel: 2 jobs: wrong month")]
    assert [(each["action"], each["selection"], each["count"]) for each in heard] == [
        ("cancel", {"tree": pay.pk}, 2)
    ]
    # Nothing is left to cancel.
    response = admin_client.get(where, follow=True)
    assert "the workflow changed meanwhile" in response.content.decode()


def test_many_jobs_are_cancelled_by_who_types_how_many(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "UNTYPED_JOBS", 1)
    with workflow("payroll") as pay:
        pay.add(tasks.add.s(1, 1), tasks.add.s(1, 1))
    where = button(admin_client, pay.pk, "Cancel the rest")
    assert confirm(admin_client, where, typed="3").status_code == 200
    assert not Batch.objects.exclude(cancel_requested_at=None).exists()
    assert confirm(admin_client, where, typed="2").status_code == 302
    run_jobs()
    assert Batch.objects.exclude(cancel_requested_at=None).exists()


def test_an_open_workflow_without_jobs_is_cancelled(admin_client: Client) -> None:
    flow = make_batch(sealed_at=None)
    assert confirm(admin_client, button(admin_client, flow, "Cancel the rest")).status_code == 302
    assert Batch.objects.get(pk=flow).tree_completed_at


@pytest.mark.parametrize("token", ["", "damaged", None])
def test_a_form_of_another_preview_does_nothing(admin_client: Client, token: str | None) -> None:
    flow, other = make_batch(jobs=1), make_batch(jobs=1)
    if token is None:
        page = admin_client.get(reverse(CANCEL, args=[other])).content.decode()
        token = re.findall(r'name="preview" value="([^"]*)"', page)[0]
    response = admin_client.post(reverse(CANCEL, args=[flow]), {"preview": token})
    assert response.status_code == 302
    assert not Batch.objects.exclude(cancel_requested_at=None).exists()


# Deleting


@pytest.mark.parametrize("most_inline", [10_000, 1])
def test_a_workflow_is_deleted_with_its_jobs(
    admin_client: Client, payroll: Batch, monkeypatch: pytest.MonkeyPatch, most_inline: int
) -> None:
    """S2.13: a large one by a worker, in pages."""
    monkeypatch.setattr(asking, "INLINE_JOBS", most_inline)
    make_jobs(2, status="failed", finished_at=NOW)
    other = make_batch("other")
    where = button(admin_client, payroll.pk, "Delete")
    text = text_of(admin_client, where)
    assert "3 jobs." in text
    assert f"The workflow payroll #{payroll.pk} goes with its jobs" in text
    assert f"Delete payroll #{payroll.pk}: are you sure?" in text
    assert "are left alone" not in text
    assert crumbs(admin_client, where)[-1] == reverse(PAGE, args=[payroll.pk])
    confirm(admin_client, where, reason="by mistake")
    run_jobs()
    assert list(Batch.objects.values_list("pk", flat=True)) == [other]
    assert Job.objects.filter(task_path__startswith="tests.").count() == 2
    assert "delete: 3 jobs: by mistake" in [message for _, message in entries("delete")]


def test_a_workflow_whose_jobs_are_gone_is_deleted(admin_client: Client) -> None:
    flow = make_batch("empty", completed_at=NOW, tree_completed_at=NOW)
    make_batch("part", parent_id=flow, completed_at=NOW, tree_completed_at=NOW)
    confirm(admin_client, button(admin_client, flow, "Delete"))
    assert not Batch.objects.exists()


def test_what_is_open_is_not_deleted(admin_client: Client, payroll: Batch) -> None:
    where = button(admin_client, payroll.pk, "Delete")
    part = Batch.objects.get(name="part")
    assert "Delete" not in labels(admin_client, part.pk)
    payroll.retry()
    assert "Delete" not in labels(admin_client, payroll.pk)
    confirm(admin_client, where)
    assert "the workflow is not complete" in said(admin_client)
    assert payroll.counts(tree=True).jobs == Job.objects.count() == 3


# Who may


@pytest.mark.parametrize(
    ("codenames", "offered"),
    [
        (("view_job",), []),
        (
            ("view_job", "operate_job"),
            ["Retry failed part", "Retry failed and cancelled", "Cancel the rest"],
        ),
        (("view_job", "delete_job"), []),
    ],
)
def test_buttons_are_for_those_who_may(codenames: tuple[str, ...], offered: list[str]) -> None:
    flow = make_batch(jobs=9, failed=2, cancelled=1)
    client = log_in(*codenames)
    assert labels(client, flow) == offered
    allowed = 200 if "operate_job" in codenames else 403
    assert client.get(reverse(CANCEL, args=[flow])).status_code == allowed


def test_whoever_may_delete_jobs_may_delete_what_is_complete() -> None:
    flow = make_batch(completed_at=NOW, tree_completed_at=NOW)
    assert labels(log_in("view_job", "delete_job"), flow) == ["Delete"]


@pytest.fixture
def narrowed(settings: Any) -> Callable[[], Client]:
    """Log in somebody whom the project lets see the jobs of the queue "own"."""

    def make() -> Client:
        settings.PGJOBS = {"ADMIN_PERMISSION": ONLY_OWN}
        client = Client()
        client.force_login(make_person())
        return client

    return make


def test_a_narrowed_person_acts_on_workflows_of_own_jobs_only(
    narrowed: Callable[[], Client],
) -> None:
    own, mixed, empty = make_batch("mine", failed=1), make_batch("mixed", failed=1), make_batch()
    for batch, queue in ((own, "own"), (mixed, "own"), (mixed, "other")):
        make_job(batch_id=batch, queue_name=queue, status="failed", finished_at=NOW)
    client = narrowed()
    text = read(client, "admin:pgjobs_batch_changelist")
    assert re.findall(r'data-pgjobs-row="(\d+)"', text) == [str(own)]
    assert labels(client, own) == ["Retry failed part", "Cancel the rest"]
    for batch in (mixed, empty):
        assert client.get(reverse(PAGE, args=[batch])).status_code == 404
        assert client.get(reverse(CANCEL, args=[batch])).status_code == 403
    assert confirm(client, reverse(CANCEL, args=[own])).status_code == 302
    assert Batch.objects.get(pk=own).cancel_requested_at


def test_whoever_may_operate_some_jobs_only_is_offered_nothing_else(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.operate_own"}
    own, other = make_batch(jobs=1, failed=1), make_batch(jobs=1, failed=1)
    for batch, queue in ((own, "own"), (other, "other")):
        make_job(batch_id=batch, queue_name=queue, status="failed", finished_at=NOW)
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    assert "Retry failed part" in labels(client, own)
    assert labels(client, other) == []


def operate_own(user: Any, permission: str, jobs: Any) -> Any:
    """Let people see everything and change what is of the queue "own"; a project's function."""
    if jobs is None or permission == "pgjobs.view_job":
        return True
    return jobs.filter(queue_name="own")
