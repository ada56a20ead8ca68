"""Actions of the list of jobs, and who may see and do what."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core import signing
from django.test import Client
from django.test.utils import override_settings
from django.urls import reverse

from django_pgjobs.admin.bulk.asking import SALT
from django_pgjobs.admin.job_list import changelist
from django_pgjobs.admin.job_list.search import Reach
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Job
from tests.admin.lists import NOW, address, counts, ids_in, link, listed, query_of, send
from tests.factories import make_job, make_jobs

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_asks_before_it_does_anything(admin_client: Client, name: str) -> None:
    ids = make_jobs(3)
    form = {"action": name, "index": "0", "select_across": "0", "_selected_action": ids[:2]}
    response = send(admin_client, form, tab="ready")
    assert response.status_code == 302
    path, _, text = response["Location"].partition("?")
    assert path == reverse("admin:pgjobs_job_bulk")
    query = query_of(text)
    assert query["verb"] == name
    assert query["next"] == f"{address()}?tab=ready"
    selection = signing.loads(query["selection"], salt=SALT)
    assert selection["lookups"] == {"id__in": ids[:2]}
    assert Job.objects.filter(status="ready").count() == 3


def test_an_action_on_all_takes_what_the_list_stands_for(admin_client: Client) -> None:
    ids = make_jobs(60, status="failed", finished_at=NOW)
    text = listed(admin_client, tab="failed", queue="default")
    assert "Select all jobs that match" in text
    form = {"action": "requeue", "index": "0", "select_across": "1", "_selected_action": ids[:50]}
    response = send(admin_client, form, tab="failed", queue="default", q="tests.tasks")
    selection = signing.loads(
        query_of(response["Location"].partition("?")[2])["selection"], salt=SALT
    )
    assert selection["lookups"] == {
        "status": "failed",
        "all_of": [{"task_path__icontains": "tests.tasks"}, {"queue_name": "default"}],
    }


def test_nothing_more_is_offered_for_a_list_on_one_page(admin_client: Client) -> None:
    make_jobs(3)
    text = listed(admin_client)
    assert 'name="action"' in text
    assert "Select all jobs that match" not in text
    assert "delete_selected" not in text


@pytest.mark.parametrize("job_id", ["abc", "-1", "9" * 30, "", "\u0663", "1 OR 1=1"])
def test_ids_that_cannot_be_are_refused_in_words(admin_client: Client, job_id: str) -> None:
    make_job()
    form = {"action": "cancel", "index": "0", "select_across": "0", "_selected_action": job_id}
    response = admin_client.post(address(), form, follow=True)
    assert response.redirect_chain == [(address(), 302)]
    assert "cannot be read" in response.content.decode()


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"action": "cancel"},
        {"action": "nothing", "index": "0", "_selected_action": "1"},
        {"action": "cancel", "index": "0"},
        {"action": "cancel", "index": "x", "_selected_action": "1"},
        {"action": "", "index": "0", "_selected_action": "1"},
        {"_save": "1"},
    ],
    ids=str,
)
def test_no_form_breaks_the_list(admin_client: Client, form: dict[str, str]) -> None:
    make_job()
    response = admin_client.post(address(), form)
    assert response.status_code == 302
    assert Job.objects.filter(status="ready").count() == 1


def test_who_may_only_look_can_do_nothing(client: Client) -> None:
    job_id = make_job()
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
    client.force_login(viewer)
    menu = listed(client).partition('name="action"')[2].partition("</select>")[0]
    offered = re.findall(r'<option value="(\w+)">', menu)
    assert offered == ["export"]
    for name, action in ACTIONS.items():
        form = {"action": name, "index": "0", "_selected_action": str(job_id)}
        status = client.post(address(), form).status_code
        assert status == (302 if name == "export" else 403), action
    assert Job.objects.filter(status="ready").count() == 1


def only_mail(user: Any, permission: str, jobs: Any) -> Any:
    """A hook of a project: everybody sees the queue of mails only."""
    return True if jobs is None else jobs.filter(queue_name="mail")


ONLY_MAIL = {"ADMIN_PERMISSION": f"{only_mail.__module__}.{only_mail.__name__}"}


def test_a_hook_of_the_project_narrows_the_list_and_all_it_counts(admin_client: Client) -> None:
    mail = make_job("shop.mail", queue_name="mail")
    hidden = make_job("shop.hidden", queue_name="hidden")
    with override_settings(PGJOBS=ONLY_MAIL):
        text = listed(admin_client)
        found = ids_in(listed(admin_client, q=str(hidden)))
    assert ids_in(text) == [mail]
    assert found == []
    assert counts(text)["all"] == "1"
    assert "shop.hidden" not in text


def test_what_a_hook_hides_is_not_looked_through_for_ever(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The condition is the project's, and may have no index at all."""
    monkeypatch.setattr(changelist, "LOOK_THROUGH", {Reach.PLAIN: 10})
    monkeypatch.setattr("django_pgjobs.admin.job_list.suggestions.RECENT_JOBS", 10)
    oldest = make_job("shop.mail", queue_name="mail")
    make_jobs(15)
    with override_settings(PGJOBS=ONLY_MAIL):
        text = listed(admin_client)
        assert ids_in(text) == []
        assert "10 jobs were looked through" in text
        further = link(text, "next")
        assert further is not None
        assert ids_in(listed(admin_client, **further)) == [oldest]


def test_a_hook_may_take_long_to_count(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_long(jobs: Any) -> Any:
        raise TooSlow("late")

    monkeypatch.setattr(changelist, "count_tabs", take_long)
    mail = make_job("shop.mail", queue_name="mail")
    with override_settings(PGJOBS=ONLY_MAIL):
        text = listed(admin_client)
    assert ids_in(text) == [mail]
    assert counts(text) == {}


def no_jobs(user: Any, permission: str, jobs: Any) -> Any:
    """A hook of a project: there is nothing to see."""
    return True if jobs is None else jobs.none()


def test_a_hook_may_leave_no_jobs(admin_client: Client) -> None:
    make_job()
    hook = {"ADMIN_PERMISSION": f"{no_jobs.__module__}.{no_jobs.__name__}"}
    with override_settings(PGJOBS=hook):
        for tab in ("all", "running", "failed"):
            assert ids_in(listed(admin_client, tab=tab)) == []
