"""The page Queues: what it counts, pausing and resuming, and the form of a queue's settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from psycopg import sql

from django_pgjobs import pause
from django_pgjobs.models import Pause, QueueSettings
from django_pgjobs.queries import queue_pages, statistics
from tests.factories import make_job, make_jobs, make_running_job, make_worker
from tests.test_admin import HOSTILE

pytestmark = pytest.mark.django_db

LIST = "admin:pgjobs_queuesettings_changelist"
LATER = sql.SQL("now() + interval '1 hour'")


@pytest.fixture
def viewer(client: Client) -> Client:
    """Somebody who may look at everything, and nothing else."""
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    return client


def read(client: Client, name: str = LIST, /, **query: str) -> str:
    """Return the text of a page that has to be there."""
    response = client.get(reverse(name), query)
    assert response.status_code == 200
    return response.content.decode()


def post(client: Client, action: str, **values: Any) -> Any:
    """Send the form that pauses or resumes."""
    return client.post(reverse(f"admin:pgjobs_queue_{action}"), values)


def rows() -> dict[str, queue_pages.QueueRow]:
    """Return the queues as the page reads them."""
    with connection.cursor() as cursor:
        return {row.name: row for row in queue_pages.list_queues(cursor).rows}


def test_a_queue_is_counted_by_what_its_jobs_wait_for() -> None:
    make_jobs(3, queue_name="mail")
    make_jobs(2, queue_name="mail", concurrency_key="shop:1")
    make_job(queue_name="mail", due_at=LATER, run_after=LATER)
    make_jobs(2, queue_name="mail", due_at=LATER, attempts=1)
    make_running_job(make_worker(queues=["mail", "other"], slots=4), queue_name="mail")
    make_worker("gone:1", lease_seconds=-1)
    make_worker("picky:1", excluded_queues=["mail"])
    make_jobs(4, queue_name="done", status="successful", finished_at=sql.SQL("now()"))
    QueueSettings.objects.create(queue_name="mail", max_running=1, boost=-5)
    mail = rows()["mail"]
    size = mail.size
    assert size is not None
    assert (size.ready, size.running, size.retrying, size.scheduled) == (5, 1, 2, 1)
    assert (mail.max_running, mail.boost, mail.workers, mail.slots) == (1, -5, 1, 4)
    assert not mail.is_unserved


def test_queues_come_from_jobs_settings_pauses_and_workers() -> None:
    make_job(queue_name="of jobs")
    make_job(queue_name="of due jobs", due_at=LATER)
    make_running_job(queue_name="of running jobs")
    QueueSettings.objects.create(queue_name="of settings")
    pause(queue="of a pause")
    make_worker(queues=["of a worker"])
    wanted = {"jobs", "due jobs", "running jobs", "settings", "a pause", "a worker"}
    assert set(rows()) == {f"of {name}" for name in wanted}


def test_the_oldest_waiting_job_is_found() -> None:
    starving = sql.SQL("now() - interval '1 day'")
    make_job(queue_name="mail", priority=-50, enqueued_at=starving)
    make_jobs(20, queue_name="mail", priority=10)
    since = rows()["mail"].waiting_since
    assert since is not None
    assert timezone.now() - since > timedelta(hours=23)


def test_a_queue_that_no_worker_serves_is_warned_about(admin_client: Client) -> None:
    make_jobs(57, queue_name="reports")
    make_job(queue_name="mail")
    make_worker(queues=["mail"])
    text = read(admin_client)
    assert "Jobs wait in the queue “reports” and no live worker serves it." in text
    assert "queue “mail” and no live worker" not in text


def test_a_queue_is_paused_with_reason_and_end_and_resumed(admin_client: Client) -> None:
    make_job(queue_name="mail")
    answer = post(
        admin_client, "pause", kind="queue", name="mail", reason="PDF <bug>", lasts="3600"
    )
    assert (answer.status_code, answer["Location"]) == (302, reverse(LIST))
    row = Pause.objects.get()
    assert (row.kind, row.name, row.reason, row.paused_by) == (
        "queue",
        "mail",
        "PDF <bug>",
        "admin",
    )
    assert row.resume_at is not None
    assert timedelta(minutes=59) < row.resume_at - timezone.now() < timedelta(minutes=61)
    text = read(admin_client)
    assert "PDF &lt;bug&gt;" in text
    assert "by admin" in text
    assert post(admin_client, "resume", kind="queue", name="mail").status_code == 302
    assert not Pause.objects.exists()
    messages = list(LogEntry.objects.order_by("pk").values_list("object_repr", "change_message"))
    assert [repr_ for repr_, _ in messages] == ["mail", "mail"]
    assert "PDF <bug>" in messages[0][1]


def test_tasks_and_keys_are_paused_and_listed_as_well(admin_client: Client) -> None:
    post(admin_client, "pause", kind="task", name="tests.tasks.add")
    post(admin_client, "pause", kind="key", name="shop:*", reason="moving house")
    text = read(admin_client)
    for word in ("tests.tasks.add", "shop:*", "moving house", "Concurrency key"):
        assert word in text
    post(admin_client, "resume", kind="key", name="shop:*")
    assert Pause.objects.values_list("name", flat=True).get() == "tests.tasks.add"


def test_an_end_by_the_clock_is_in_the_time_zone_of_the_page(admin_client: Client) -> None:
    until = timezone.localtime() + timedelta(days=1)
    post(admin_client, "pause", kind="queue", name="a", until=until.strftime("%Y-%m-%dT%H:%M"))
    row = Pause.objects.get()
    assert row.resume_at == until.replace(second=0, microsecond=0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "planet", "name": "a"}, "Select a valid choice"),
        ({"kind": "queue", "name": ""}, "This field is required"),
        ({"kind": "queue", "name": "a*"}, "Only concurrency keys have patterns"),
        ({"kind": "queue", "name": "x" * 600}, "at most 512 bytes"),
        ({"kind": "queue", "name": "a\nb"}, "one line"),
        ({"kind": "queue", "name": "a\0b"}, "Null characters"),
        ({"kind": "queue", "name": "a", "until": "2001-01-01T00:00"}, "time in the future"),
        ({"kind": "queue", "name": "a", "until": "never"}, "Enter a valid date"),
        ({"kind": "queue", "name": "a", "lasts": "5"}, "Select a valid choice"),
    ],
)
def test_a_wrong_pause_is_refused_in_words(
    admin_client: Client, values: dict[str, str], words: str
) -> None:
    answer = post(admin_client, "pause", **values)
    assert answer.status_code == 200
    assert words in answer.content.decode()
    assert not Pause.objects.exists()


@pytest.mark.parametrize(
    "values", [{}, {"kind": "x", "name": "a"}, {"kind": "queue", "name": "b*"}]
)
def test_a_wrong_resume_changes_nothing(admin_client: Client, values: dict[str, str]) -> None:
    pause(queue="a")
    assert post(admin_client, "resume", **values).status_code == 302
    assert Pause.objects.count() == 1
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("given", "leads_to"),
    [
        ("/admin/pgjobs/", "/admin/pgjobs/"),
        ("https://evil.example/", None),
        ("//evil.example", None),
        ("javascript:alert(1)", None),
        ("", None),
    ],
)
def test_a_form_leads_back_to_pages_of_ours_only(
    admin_client: Client, given: str, leads_to: str | None
) -> None:
    answer = post(admin_client, "pause", kind="queue", name="a", next=given)
    assert answer["Location"] == (leads_to or reverse(LIST))


def test_who_may_only_look_sees_no_button_and_changes_nothing(viewer: Client) -> None:
    make_job(queue_name="mail")
    pause(queue="mail")
    QueueSettings.objects.create(queue_name="mail")
    text = read(viewer) + read(viewer, "admin:pgjobs_queue", name="mail")
    assert reverse("admin:pgjobs_queue_pause") not in text
    assert reverse("admin:pgjobs_queue_resume") not in text
    for action in ("pause", "resume"):
        assert post(viewer, action, kind="queue", name="mail").status_code == 403
    assert viewer.get(reverse("admin:pgjobs_queue_pause")).status_code == 403
    for model in ("queuesettings", "pause"):
        assert viewer.post(reverse(f"admin:pgjobs_{model}_add"), {}).status_code == 403
        assert viewer.post(reverse(f"admin:pgjobs_{model}_changelist"), {}).status_code == 403
    assert Pause.objects.count() == 1


def test_resuming_asks_first_and_keeps_why_it_was_paused(admin_client: Client) -> None:
    pause(queue="mail", reason="PDF <bug>", by="anna")
    resume = reverse("admin:pgjobs_queue_resume")
    given = {"kind": "queue", "name": "mail", "next": "/admin/pgjobs/"}
    answer = admin_client.get(resume, given)
    for word in ("PDF &lt;bug&gt;", "by anna", "Yes, resume", 'href="/admin/pgjobs/"'):
        assert word in answer.content.decode()
    assert Pause.objects.exists()
    assert admin_client.post(resume, given)["Location"] == "/admin/pgjobs/"
    assert not Pause.objects.exists()
    assert "anna: PDF <bug>" in LogEntry.objects.latest("pk").change_message
    assert "It is not paused: mail." in admin_client.get(resume, given).content.decode()


def test_pausing_what_is_paused_begins_with_its_reason_and_end(admin_client: Client) -> None:
    until = timezone.now().replace(microsecond=0) + timedelta(days=2)
    pause(queue="mail", reason="PDF bug", by="anna", until=until)
    text = read(admin_client, "admin:pgjobs_queue_pause", kind="queue", name="mail")
    assert 'value="PDF bug"' in text
    assert timezone.localtime(until).strftime("%Y-%m-%dT%H:%M") in text


@pytest.mark.parametrize("name", ["", "a*", "x" * 600, "a\0b"])
def test_what_cannot_be_paused_is_not_resumed(admin_client: Client, name: str) -> None:
    for method in (admin_client.get, admin_client.post):
        answer = method(reverse("admin:pgjobs_queue_resume"), {"kind": "queue", "name": name})
        assert answer.status_code in (200, 302)


def test_the_page_of_a_queue_shows_its_jobs_and_workers(admin_client: Client) -> None:
    worker_id = make_worker("web-1:44", queues=["mail"])
    job = make_running_job(worker_id, queue_name="mail", task_path="shop.tasks.send")
    make_running_job(worker_id, queue_name="other", task_path="shop.tasks.hide")
    text = read(admin_client, "admin:pgjobs_queue", name="mail")
    assert f"shop.<wbr>tasks.<wbr>send #{job.id}" in text
    assert "web-1:44" in text
    assert "hide #" not in text


@pytest.mark.parametrize("name", ["", "nothing", "a/b?c=d", "\0", HOSTILE, "x" * 5_000])
def test_the_page_of_any_name_stays_up(admin_client: Client, name: str) -> None:
    read(admin_client, "admin:pgjobs_queue", name=name)


def test_hostile_names_are_inert(admin_client: Client) -> None:
    make_job(queue_name=HOSTILE[:60], concurrency_key=HOSTILE[:60])
    make_running_job(make_worker(HOSTILE, queues=[HOSTILE]), queue_name=HOSTILE[:60])
    QueueSettings.objects.create(queue_name=HOSTILE[:60], note=HOSTILE)
    pause(queue=HOSTILE[:60], reason=HOSTILE, by=HOSTILE)
    pause(key=HOSTILE, reason=HOSTILE, by=HOSTILE)
    text = read(admin_client) + read(admin_client, "admin:pgjobs_queue", name=HOSTILE[:60])
    assert "<script>alert" not in text
    assert "<img src=x" not in text


def test_a_pause_for_ever_can_be_read(admin_client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_pause (kind, name, resume_at) VALUES ('queue', 'a', 'infinity'),"
            " ('task', 'b', 'infinity')"
        )
    assert read(admin_client).count("Paused") >= 2


@pytest.mark.slow
def test_the_page_is_bounded(admin_client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (task_path, queue_name, concurrency_key)"
            " SELECT 'a.b', 'queue ' || n, CASE WHEN n % 2 = 0 THEN 'key ' || n END"
            " FROM generate_series(1, 300) AS n"
        )
    for number in range(queue_pages.MAX_PAUSES):
        pause(queue=f"queue {number}", reason="because")
        make_job(queue_name=f"queue {number}", status="failed", finished_at=sql.SQL("now()"))
        pause(key=f"shop:{number}", reason="because")
    with connection.cursor() as cursor:
        statistics.measure_queues(cursor)
    with CaptureQueriesContext(connection) as queries:
        text = read(admin_client)
    assert len(queries) <= 12
    assert len(text.encode()) < 150_000
    assert "There are more" in text


def test_saving_settings_and_pauses_wakes_idle_workers_and_is_recorded(
    admin_client: Client,
) -> None:
    add = {"queue_name": "mail", "max_running": 3, "boost": 0, "note": "narrow"}
    with CaptureQueriesContext(connection) as queries:
        admin_client.post(reverse("admin:pgjobs_queuesettings_add"), add)
        address = reverse("admin:pgjobs_queuesettings_change", args=["mail"])
        admin_client.post(address, {"max_running": 4, "boost": 10, "note": ""})
        admin_client.post(reverse("admin:pgjobs_pause_add"), {"kind": "queue", "name": "mail"})
        address = reverse("admin:pgjobs_pause_delete", args=[Pause.objects.get().pk])
        admin_client.post(address, {"post": "yes"})
    told = [query for query in queries if "pgjobs_control" in query["sql"]]
    assert len(told) == 4
    row = QueueSettings.objects.get()
    assert (row.max_running, row.boost) == (4, 10)
    assert LogEntry.objects.count() == 4


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"queue_name": "x" * 129, "boost": 0}, "at most 128 bytes"),
        ({"queue_name": "a\nb", "boost": 0}, "one line"),
    ],
)
def test_wrong_settings_are_refused_in_words(
    admin_client: Client, values: dict[str, Any], words: str
) -> None:
    answer = admin_client.post(reverse("admin:pgjobs_queuesettings_add"), values)
    assert answer.status_code == 200
    assert words in answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_pause_is_heard_by_workers_when_it_commits(
    admin_client: Client, open_connection: Callable[..., psycopg.Connection]
) -> None:
    listener = open_connection()
    listener.execute("LISTEN pgjobs_control")
    post(admin_client, "pause", kind="queue", name="mail")
    heard = list(listener.notifies(timeout=5, stop_after=1))
    assert [notification.channel for notification in heard] == ["pgjobs_control"]


def test_the_form_of_a_new_pause_shows_nothing_that_it_does_not_have_yet(
    admin_client: Client,
) -> None:
    text = admin_client.get(reverse("admin:pgjobs_pause_add")).content.decode()
    assert "DatabaseDefault" not in text and "Paused at" not in text
    assert "Time zone: Asia/Kathmandu." in text
    pause(key="shop:*")
    changing = reverse("admin:pgjobs_pause_change", args=[Pause.objects.get().pk])
    assert "Paused at" in admin_client.get(changing).content.decode()


def test_a_pause_that_would_be_over_is_refused(admin_client: Client) -> None:
    over = {"kind": "queue", "name": "mail", "resume_at_0": "2020-01-01", "resume_at_1": "00:00"}
    answer = admin_client.post(reverse("admin:pgjobs_pause_add"), over)
    assert "Expected a time in the future." in answer.content.decode()
    assert not Pause.objects.exists()
    # One that has ended meanwhile may be described.
    row = Pause.objects.create(
        kind="queue", name="mail", resume_at=datetime(2020, 1, 1, tzinfo=UTC)
    )
    changing = reverse("admin:pgjobs_pause_change", args=[row.pk])
    text = {"reason": "PDF bug", "resume_at_0": "2020-01-01", "resume_at_1": "05:45:00"}
    admin_client.post(changing, over | text)
    assert Pause.objects.get().reason == "PDF bug"
