"""A retry of a tree is what `Batch.retry()` does, and for those who may act on all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from django_pgjobs import workflow
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import Page, create_change, run_page
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Batch, BulkChange, Job
from django_pgjobs.queries import batch_care
from django_pgjobs.testing import run_jobs
from django_pgjobs.workflows import retrying
from tests import tasks
from tests.admin.bulk_support import address, confirm, said, text_of, token_of
from tests.admin.tenants import ONLY_OWN, make_person
from tests.admin.test_workflow_actions import button, labels

pytestmark = pytest.mark.django_db

RETRIED = ["cancelled", "failed"]


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with no call remembered, and requeue jobs one by one."""
    tasks.SEEN.clear()
    monkeypatch.setattr(retrying, "PAGE", 1)


def all_of(flow: Batch) -> Selection:
    """Return what the button of a page is about."""
    return Selection({"tree": flow.pk, "status__in": RETRIED})


def change_of(verb: str, selection: Selection, user: User) -> BulkChange:
    """Return a change that is to be done in the background."""
    return create_change(ACTIONS[verb], selection.pinned(), {}, user=user)


def test_parts_that_were_cancelled_end_once_more(admin_user: User) -> None:
    with workflow("parts") as flow:
        for name in "ab":
            part = flow.batch(name)
            part.add(tasks.seen.s(name))
            part.then(tasks.seen.s(f"after {name}"), after_failure="run")
            part.seal()
    flow.cancel()
    run_jobs()
    assert not run_page(change_of("requeue", all_of(flow), admin_user).pk).goes_on
    run_jobs()
    assert sorted(tasks.SEEN) == [("a",), ("after a",), ("after b",), ("b",)]
    assert {batch.completions for batch in Batch.objects.filter(name__in="ab")} == {2}


def test_what_follows_two_parts_that_failed_runs_once(admin_user: User) -> None:
    with workflow("joined") as flow:
        parts = [flow.batch(name) for name in "ab"]
        flow.join(*parts).then(tasks.seen.s("charge"), after_failure="run")
        flow.on_complete(tasks.seen.s("end"))
        for part in parts:
            part.add(tasks.fail_once.s())
            part.seal()
    run_jobs()
    Job.objects.filter(status="failed").update(task_path="tests.tasks.add", args=[1, 1])
    tasks.SEEN.clear()
    change = change_of("requeue", all_of(flow), admin_user)
    assert not run_page(change.pk).goes_on
    run_jobs()
    ends = [("charge",), (flow.pk, "end")]
    assert ends == tasks.SEEN
    change.refresh_from_db()
    assert (change.changed, change.passed_over, change.conflicts) == (2, 0, 0)


def test_what_has_failed_before_cancels_nothing_of_what_is_retried(admin_user: User) -> None:
    with workflow("strict") as flow:
        flow.add_many(tasks.fail_once, [()] * 3)
    run_jobs()
    Batch.objects.update(on_failed_job="cancel workflow")
    assert len(run_page(change_of("requeue", all_of(flow), admin_user).pk).changed) == 3
    flow.refresh_from_db()
    assert (flow.failed, flow.cancelled, flow.cancel_requested_at) == (0, 0, None)


def test_the_preview_counts_a_step_that_failed_behind_what_is_not_retried(
    admin_client: Client,
) -> None:
    with workflow("cancelled job") as flow:
        flow.add(tasks.add.s(1, 1))
        flow.then(tasks.fail_once.s(), after_failure="run")
    Job.objects.get(task_path="tests.tasks.add").cancel()
    run_jobs()
    where = button(admin_client, flow.pk, "Retry failed part")
    assert "1 job." in text_of(admin_client, where)
    confirm(admin_client, where)
    assert Job.objects.get(status="ready").task_path == "tests.tasks.fail_once"


def test_a_retry_of_some_jobs_of_a_tree_takes_back_no_cancel(admin_client: Client) -> None:
    """Of those that a search in the list has found, say."""
    flow = cancelled()
    selection = Selection({"tree": flow.pk, "status": "cancelled"})
    assert "A cancel of it is taken back" not in text_of(
        admin_client, address("requeue", selection)
    )
    confirm(admin_client, address("requeue", selection))
    run_jobs()
    flow.refresh_from_db()
    assert flow.cancel_requested_at is not None
    assert not tasks.SEEN


def cancelled() -> Batch:
    """Return a workflow that was cancelled: a job of "own", one of "other", and a step."""
    with workflow("cancelled") as flow:
        flow.add(tasks.add.using(queue_name="own").s(1, 1))
        flow.add(tasks.add.using(queue_name="other").s(1, 1))
        flow.then(tasks.seen.using(queue_name="other").s("then"), after_failure="run")
    flow.cancel()
    run_jobs()
    return flow


# Who may


def delete_of(flow: Batch) -> Selection:
    """Return what the button that deletes a workflow is about."""
    return Selection({"tree": flow.pk})


@pytest.mark.parametrize(("verb", "selected"), [("requeue", all_of), ("delete", delete_of)])
def test_who_may_act_on_some_jobs_does_not_act_on_their_tree(
    settings: Any,
    admin_client: Client,
    verb: str,
    selected: Callable[[Batch], Selection],
) -> None:
    """Neither by a link, nor by a form, nor by a change that is on its way."""
    flow = cancelled()
    where = address(verb, selected(flow))
    token = token_of(admin_client, where)
    settings.PGJOBS = {"ADMIN_PERMISSION": ONLY_OWN}
    person, client = make_person(), Client()
    client.force_login(person)
    assert client.get(where).status_code == 403
    sent = {"preview": token, "reason": "", "when": "now"}
    assert client.post(where, sent).status_code == 403
    change = change_of(verb, selected(flow), person)
    assert run_page(change.pk) == Page([], goes_on=False)
    change.refresh_from_db()
    assert change.error == "Stopped: antelope is no longer allowed to do this."
    run_jobs()
    flow.refresh_from_db()
    assert flow.cancel_requested_at is not None and flow.deleting_at is None
    assert flow.counts(tree=True) == (2, 0, 0, 2)
    assert not tasks.SEEN


@pytest.mark.slow
def test_who_may_act_on_all_jobs_of_a_tree_deletes_it(settings: Any) -> None:
    """Jobs of a page are gone when the next one is done."""
    with workflow("mine") as flow:
        flow.add_many(tasks.add.using(queue_name="own"), [(1, 1)] * 3)
        flow.add(tasks.fail_once.using(queue_name="own").s())
    run_jobs()
    settings.PGJOBS = {"ADMIN_PERMISSION": ONLY_OWN}
    client = Client()
    client.force_login(make_person())
    confirm(client, address("delete", delete_of(flow)))
    assert not Batch.objects.exists() and not Job.objects.exists()


# While it is deleted


def test_what_is_being_deleted_is_not_retried(admin_client: Client) -> None:
    flow = cancelled()
    where = button(admin_client, flow.pk, "Retry failed and cancelled")
    with connection.cursor() as cursor:
        assert batch_care.begin_deletion(cursor, [flow.pk]) == [flow.pk]
    assert labels(admin_client, flow.pk) == ["Delete"]
    confirm(admin_client, where)
    assert "the workflow is being deleted" in said(admin_client)
    run_jobs()
    flow.refresh_from_db()
    assert flow.cancel_requested_at is not None and flow.completions == 1
    assert not tasks.SEEN
