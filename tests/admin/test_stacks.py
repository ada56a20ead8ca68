"""Where a running job is, on its page: who may ask, and what is said."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_pgjobs.models import Stack
from tests.factories import make_job, make_running_job, make_worker

pytestmark = pytest.mark.django_db

BUTTON = "Show where it is"


def page(job_id: int) -> str:
    return reverse("admin:pgjobs_job_change", args=[job_id])


def where(job_id: int) -> str:
    return reverse("admin:pgjobs_job_where", args=[job_id])


@pytest.fixture
def client_of(client: Client) -> Client:
    """Who may look at jobs and act on them, and has no say over workers."""
    user = User.objects.create_user("operator", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["view_job", "operate_job", "view_worker"])
    )
    client.force_login(user)
    return client


def test_the_button_asks_the_worker(admin_client: Client) -> None:
    job = make_running_job()
    text = admin_client.get(page(job.id)).content.decode()
    assert BUTTON in text
    assert f'action="{where(job.id)}"' in text
    answer = admin_client.post(where(job.id), follow=True)
    assert answer.redirect_chain[-1][0] == page(job.id)
    shown = answer.content.decode()
    assert "the worker answers at its next heartbeat" in shown
    assert Stack.objects.get().job_id == job.id
    assert LogEntry.objects.get().change_message == "ask where"


def test_the_answer_is_shown_and_harmless(admin_client: Client) -> None:
    job = make_running_job()
    stack = '  File "/srv/<b>shop</b>/tasks.py", line 17, in push'
    admin_client.post(where(job.id))
    Stack.objects.update(written_at="2026-05-01T12:00:00Z", stack=stack)
    text = admin_client.get(page(job.id)).content.decode()
    assert "/srv/&lt;b&gt;shop&lt;/b&gt;/tasks.py&quot;, line 17, in push" in text
    assert "Show where it is now" in text
    Stack.objects.update(stack="")
    assert "has not begun it" in admin_client.get(page(job.id)).content.decode()


def test_a_worker_that_does_not_answer_is_told_of(admin_client: Client) -> None:
    job = make_running_job(make_worker(lease_seconds=3_600))
    admin_client.post(where(job.id))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_stack SET requested_at = now() - interval '1 hour'")
    text = admin_client.get(page(job.id)).content.decode()
    assert "The worker has not answered within its lease" in text


def test_a_worker_over_http_cannot_be_asked(admin_client: Client) -> None:
    job = make_running_job(make_worker(token_id=1))
    assert BUTTON not in admin_client.get(page(job.id)).content.decode()


def test_who_may_not_control_workers_has_no_button_and_is_refused(client_of: Client) -> None:
    job = make_running_job()
    assert BUTTON not in client_of.get(page(job.id)).content.decode()
    assert client_of.post(where(job.id)).status_code == 403
    assert client_of.get(where(job.id)).status_code == 403
    assert not Stack.objects.exists()


def test_what_somebody_else_asked_is_seen_by_all(client_of: Client) -> None:
    job = make_running_job()
    line = '  File "tasks.py", line 17, in push'
    Stack.objects.create(
        job_id=job.id, claim=1, worker_id=job.worker_id,
        written_at="2026-05-01T12:00:00Z", stack=line,
    )  # fmt: skip
    text = client_of.get(page(job.id)).content.decode()
    assert "line 17, in push" in text
    assert BUTTON not in text


def test_a_look_asks_nothing(admin_client: Client) -> None:
    job = make_running_job()
    assert admin_client.get(where(job.id)).status_code == 405
    assert not Stack.objects.exists()


def test_what_does_not_run_is_nowhere(admin_client: Client) -> None:
    job_id = make_job()
    assert BUTTON not in admin_client.get(page(job_id)).content.decode()
    text = admin_client.post(where(job_id), follow=True).content.decode()
    assert "does not run any more" in text
    assert admin_client.post(where(2**40)).status_code == 404
