"""The buttons of the page of one job: who is offered what, and what comes of pressing it."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation import override

from django_pgjobs.admin.job_page.actions import JOB_ACTIONS
from django_pgjobs.models import Job
from tests.admin.test_job_page import LATER, job_page, last_entry, user_with
from tests.factories import get_job, make_batch, make_job
from tests.helpers import connect
from tests.test_admin import NOW, page, read

pytestmark = pytest.mark.django_db

OFFERED: dict[str, set[str]] = {
    "ready": {"postpone", "cancel", "discard"},
    "scheduled": {"run_now", "postpone", "cancel", "discard"},
    "running": {"cancel"},
    "asked to end": set(),
    "successful": {"requeue", "requeue_at", "delete"},
    "failed": {"requeue", "requeue_at", "discard", "delete"},
    "cancelled": {"requeue", "requeue_at", "delete"},
}
COLUMNS: dict[str, dict[str, Any]] = {
    "scheduled": {"status": "ready", "due_at": LATER, "run_after": LATER},
    "asked to end": {"status": "running", "cancel_requested_at": NOW},
}
NOON = {"at": "2030-01-01T12:00"}


def make(kind: str) -> int:
    """Insert a job of that kind."""
    return make_job(**COLUMNS.get(kind, {"status": kind}))


def press(client: Client, job_id: Any, name: str, **data: str) -> str:
    """Press a button of the page; return the text of the page that follows."""
    response = client.post(page("job", "do", job_id, name), data, follow=True)
    return unescape(response.content.decode())


def offered(text: str) -> set[str]:
    """Return the names of the actions that a page has buttons for."""
    return {name for name in JOB_ACTIONS if f"/do/{name}/" in text}


@pytest.mark.parametrize("kind", OFFERED)
def test_buttons_follow_the_status(admin_client: Client, kind: str) -> None:
    job_id = make(kind)
    text = job_page(admin_client, job_id)
    assert offered(text) == OFFERED[kind]
    assert f'href="{page("job", "copy", job_id)}"' in text
    assert text.count("csrfmiddlewaretoken") >= len(OFFERED[kind])


@pytest.mark.slow
@pytest.mark.parametrize("name", JOB_ACTIONS)
def test_who_may_only_view_has_no_button_and_is_refused(client: Client, name: str) -> None:
    user_with(client, "view_job", "reveal_job", "enqueue_job")
    job_ids = [make(kind) for kind in OFFERED]
    before = list(Job.objects.order_by("pk").values())
    for job_id in job_ids:
        assert not offered(job_page(client, job_id))
        assert client.post(page("job", "do", job_id, name), NOON).status_code == 403
    assert list(Job.objects.order_by("pk").values()) == before
    assert not LogEntry.objects.exists()


def test_operating_does_not_include_deleting(client: Client) -> None:
    user_with(client, "view_job", "operate_job")
    job_id = make("failed")
    assert offered(job_page(client, job_id)) == {"requeue", "requeue_at", "discard"}
    assert client.post(page("job", "do", job_id, "delete")).status_code == 403


def only_mail(user: Any, permission: str, jobs: Any) -> Any:
    """Let people act on the queue "mail" alone."""
    return True if jobs is None or "view" in permission else jobs.filter(queue_name="mail")


def nothing_of_mail(user: Any, permission: str, jobs: Any) -> Any:
    """Hide the queue "mail"."""
    return True if jobs is None else jobs.exclude(queue_name="mail")


def test_a_hook_narrows_what_may_be_done(admin_client: Client, settings: Any) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.only_mail"}
    mine, other = make_job(status="failed", queue_name="mail"), make("failed")
    assert offered(job_page(admin_client, mine)) == OFFERED["failed"]
    text = job_page(admin_client, other)
    assert not offered(text)
    assert page("job", "copy", other) not in text
    assert admin_client.post(page("job", "do", other, "requeue")).status_code == 403
    assert admin_client.get(page("job", "copy", other)).status_code == 403
    assert admin_client.get(page("job", "change", other), {"reveal": "1"}).status_code == 403


def test_a_hook_can_hide_jobs(admin_client: Client, settings: Any) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.nothing_of_mail"}
    job_id = make_job(queue_name="mail")
    assert admin_client.get(page("job", "change", job_id)).status_code == 404
    assert admin_client.get(page("job", "download", job_id)).status_code == 404
    press(admin_client, job_id, "cancel")
    assert get_job(job_id).status == "ready"


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("requeue", "failed", "ready"),
        ("run_now", "scheduled", "ready"),
        ("cancel", "ready", "cancelled"),
        ("discard", "failed", "cancelled"),
        ("discard", "ready", "cancelled"),
    ],
)
def test_a_button_does_what_it_says(
    admin_client: Client, admin_user: User, name: str, kind: str, status: str
) -> None:
    job_id = make(kind)
    text = press(admin_client, job_id, name, reason="because")
    assert str(JOB_ACTIONS[name].done) in text
    row = get_job(job_id)
    assert (row.status, row.due_at) == (status, None)
    entry = last_entry()
    assert (entry.user_id, entry.object_id) == (admin_user.pk, str(job_id))
    assert entry.change_message == f"{name.replace('_', ' ')}: because"
    assert "because" in read(admin_client, "job", "history", job_id)


def test_a_discarded_job_says_who_did_it(admin_client: Client) -> None:
    job_id = make("failed")
    text = press(admin_client, job_id, "discard", reason="a test <b>")
    assert get_job(job_id).note == "discarded by admin: a test <b>"
    assert "a test <b>" in text


def test_a_time_is_taken_in_the_current_time_zone(admin_client: Client) -> None:
    job_id = make("failed")
    press(admin_client, job_id, "requeue_at", **NOON)
    # The tests' zone is Kathmandu's.
    assert get_job(job_id).run_after.isoformat() == "2030-01-01T06:15:00+00:00"
    press(admin_client, job_id, "postpone", at="2031-01-01T12:00")
    assert get_job(job_id).due_at.isoformat() == "2031-01-01T06:15:00+00:00"


def test_the_form_names_the_zone_of_its_time(admin_client: Client) -> None:
    text = job_page(admin_client, make("failed"))
    assert text.count("Time zone: Asia/Kathmandu.") == 1
    assert 'aria-describedby="id_requeue_at_at_helptext"' in text
    assert 'id="id_requeue_at_at_helptext"' in text


def test_a_form_that_was_refused_is_still_open(admin_client: Client) -> None:
    job_id = make("failed")
    assert '<details class="pgjobs-popup" open>' not in job_page(admin_client, job_id)
    text = press(admin_client, job_id, "requeue_at", at="")
    opened = text.partition('<details class="pgjobs-popup" open>')[2].partition("</details>")[0]
    assert page("job", "do", job_id, "requeue_at") in opened
    assert text.count('class="pgjobs-popup" open') == 1


@pytest.mark.parametrize("at", ["", "x", "9999-12-31T23:59", "2030-13-01T00:00"])
def test_a_wrong_time_changes_nothing(admin_client: Client, at: str) -> None:
    job_id = make("failed")
    assert "Nothing was done" in press(admin_client, job_id, "requeue_at", at=at)
    assert get_job(job_id).status == "failed"
    assert not LogEntry.objects.exists()


def test_an_action_that_shows_no_time_takes_none(admin_client: Client) -> None:
    job_id = make("failed")
    press(admin_client, job_id, "requeue", **NOON)
    assert get_job(job_id).run_after is None


def test_a_deleted_job_leads_back_to_the_list(admin_client: Client) -> None:
    job_id = make("failed")
    response = admin_client.post(page("job", "do", job_id, "delete"), {"reason": "old"})
    assert response["Location"] == page("job", "changelist")
    assert not Job.objects.exists()
    assert last_entry().object_id == str(job_id)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("requeue", "ready"),
        ("requeue_at", "running"),
        ("run_now", "running"),
        ("postpone", "failed"),
        ("cancel", "failed"),
        ("discard", "running"),
        ("delete", "ready"),
    ],
)
def test_a_job_that_changed_meanwhile_is_left_alone(
    admin_client: Client, name: str, kind: str
) -> None:
    job_id = make(kind)
    text = press(admin_client, job_id, name, **NOON)
    assert "the job changed meanwhile" in text
    assert get_job(job_id).status == kind
    assert not LogEntry.objects.exists()


def test_a_twin_with_the_unique_key_is_named(admin_client: Client) -> None:
    job_id = make_job(status="failed", unique_key="k")
    twin = make_job(unique_key="k")
    text = press(admin_client, job_id, "requeue")
    assert "another unfinished job has its unique key" in text
    assert f'href="{page("job", "change", twin)}"' in text
    assert "held by" in text
    assert get_job(job_id).status == "failed"


@pytest.mark.django_db(transaction=True)
def test_a_locked_job_gives_a_message(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_pgjobs.control.lifecycle.LOCKED_SECONDS", 0.0)
    job_id = make_job()
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [job_id])
        said = f"Nothing was done: job {job_id} is locked by another transaction, after "
        assert said in press(admin_client, job_id, "cancel")
        with override("de"):
            text = press(admin_client, job_id, "cancel")
        assert f"Job {job_id} ist von einer anderen Transaktion gesperrt" in text


def test_why_a_job_is_not_requeued_names_it_in_german_too(admin_client: Client) -> None:
    """Somebody may press the buttons of several pages, and read the messages later."""
    job_id = make_job(status="failed", batch_id=make_batch(cancel_requested_at=NOW))
    with override("de"):
        text = press(admin_client, job_id, "requeue")
    assert f"Job {job_id} wird nicht neu eingereiht: sein Stapel wurde abgebrochen." in text


def test_unknown_actions_and_jobs_give_a_message(admin_client: Client) -> None:
    job_id = make_job()
    assert "no such action" in press(admin_client, job_id, "explode")
    assert "does not exist" in press(admin_client, 999_999, "cancel")
    assert "does not exist" in press(admin_client, "abc", "cancel")
    assert admin_client.get(page("job", "do", job_id, "cancel")).status_code == 405


def test_a_button_leads_back_to_where_it_stood(admin_client: Client) -> None:
    job_id = make_job()
    address = page("job", "do", job_id, "postpone")
    inside = admin_client.post(address, NOON | {"next": "/admin/auth/user/"})
    assert inside["Location"] == "/admin/auth/user/"
    outside = admin_client.post(address, NOON | {"next": "https://evil.example/"})
    assert outside["Location"] == page("job", "change", job_id)


def test_a_forged_form_is_refused() -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    assert client.post(page("job", "do", make_job(), "cancel")).status_code == 403
