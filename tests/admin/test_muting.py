"""Muting warnings: who may, for how long, and where the muted ones are."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgjobs.models import Mute, Schedule, Statistic
from tests.admin.overview_support import numbers
from tests.admin.warning_support import no_dead_rows
from tests.factories import ago, make_batch, make_job, make_jobs, make_running_job, make_worker

__all__ = ["no_dead_rows"]

pytestmark = pytest.mark.django_db

MUTE = reverse("admin:pgjobs_job_mute")
UNMUTE = reverse("admin:pgjobs_job_unmute")
HOME = reverse("admin:app_list", args=["pgjobs"])
FORM = {"kind": "unserved", "subject": "reports", "reason": "known", "lasts": "3600"}


@pytest.fixture(autouse=True)
def unserved() -> None:
    make_worker(queues=["mail"])
    make_jobs(3, queue_name="reports")
    make_jobs(2, queue_name="fax")


@pytest.fixture
def viewer(client: Client) -> Client:
    """Who may look at everything and control no queues."""
    user = User.objects.create_user("viewer", is_staff=True)
    codes = ["view_job", "view_worker", "operate_job", "control_worker"]
    user.user_permissions.set(Permission.objects.filter(codename__in=codes))
    client.force_login(user)
    return client


def subjects() -> tuple[list[str], list[str]]:
    """Return what the shown warnings are about, and the muted ones."""
    found = numbers()
    shown = [notice.subject for notice in found["warnings"]]
    return shown, [each.notice.subject for each in found["muted"]]


def test_a_warning_is_muted_and_shown_below(admin_client: Client) -> None:
    text = admin_client.get(HOME).content.decode()
    assert f'href="{MUTE}?kind=unserved&amp;subject=reports&amp;next=' in text
    question = admin_client.get(MUTE, {"kind": "unserved", "subject": "reports", "next": HOME})
    assert "No worker serves a queue" in question.content.decode()
    assert subjects()[1] == []
    answer = admin_client.post(MUTE, FORM | {"next": HOME})
    assert answer.headers["Location"] == HOME
    assert subjects() == (["fax"], ["reports"])
    mute = Mute.objects.get()
    assert (mute.kind, mute.subject, mute.muted_by) == ("unserved", "reports", "admin")
    assert timedelta(minutes=59) < mute.until - timezone.now() <= timedelta(hours=1)
    text = admin_client.get(HOME).content.decode()
    assert "1 warning is muted" in text
    assert "by admin: known" in text
    Mute.objects.update(muted_by="")
    text = admin_client.get(HOME).content.decode()
    assert re.search(r"Muted until [^<]*\d[^<b]*: known", text)
    entry = LogEntry.objects.get()
    assert entry.object_repr == "unserved reports"
    assert entry.change_message == "mute: known"


def test_what_is_kept_of_the_page_is_forgotten(
    admin_client: Client, django_capture_on_commit_callbacks: Any, settings: Any
) -> None:
    """Who has muted a warning does not see it above."""

    def is_listed() -> bool:
        text = admin_client.get(HOME).content.decode()
        return f"subject=reports&amp;next={quote(HOME, safe='')}" in text

    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "muted"}
    }
    cache.clear()
    assert is_listed()
    with django_capture_on_commit_callbacks(execute=True):
        admin_client.post(MUTE, FORM)
    assert not is_listed()
    with django_capture_on_commit_callbacks(execute=True):
        admin_client.post(UNMUTE, {"kind": "unserved", "subject": "reports"})
    assert is_listed()


def test_the_number_may_change_meanwhile(admin_client: Client) -> None:
    admin_client.post(MUTE, FORM)
    make_jobs(5, queue_name="reports")
    assert subjects() == (["fax"], ["reports"])


def test_it_is_shown_again_at_its_end_and_when_somebody_says_so(admin_client: Client) -> None:
    admin_client.post(MUTE, FORM)
    admin_client.post(MUTE, FORM | {"subject": "fax"})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_mute SET until = now() WHERE subject = 'fax'")
    assert subjects() == (["fax"], ["reports"])
    admin_client.post(UNMUTE, {"kind": "unserved", "subject": "reports"})
    assert sorted(subjects()[0]) == ["fax", "reports"]
    assert LogEntry.objects.latest("id").change_message == "unmute"
    text = admin_client.post(
        UNMUTE, {"kind": "unserved", "subject": "reports"}, follow=True
    ).content.decode()
    assert "is not muted any more" in text


def mute(client: Client, kind: str, *subjects: str) -> None:
    for subject in subjects:
        client.post(MUTE, FORM | {"kind": kind, "subject": subject})


def warned_of(kind: str) -> list[str]:
    return [notice.subject for notice in numbers()["warnings"] if notice.kind == kind]


def test_muting_five_of_a_kind_hides_no_other(admin_client: Client) -> None:
    make_worker("b:1")
    for number in range(7):
        make_job(rate_limit_keys=f"limit-{number}:1")
    names = [f"limit-{number}" for number in range(7)]
    assert warned_of("missing_rate") == [*names[:5], "(others)"]
    mute(admin_client, "missing_rate", *names[:5])
    assert warned_of("missing_rate") == names[5:]


def test_muting_a_queue_that_waits_hides_no_other(admin_client: Client) -> None:
    make_worker("b:1", queues=["api", "keyed"])
    make_job(queue_name="api", enqueued_at=ago(900))
    make_job(queue_name="keyed", enqueued_at=ago(600))
    assert warned_of("long_wait") == ["api", "keyed"]
    mute(admin_client, "long_wait", "api")
    assert warned_of("long_wait") == ["keyed"]


def test_muting_stuck_jobs_hides_no_other(admin_client: Client) -> None:
    worker = make_worker("b:1", slots=9)
    Statistic.objects.create(
        begins_at=timezone.now() - timedelta(hours=1),
        queue_name="default",
        task_path="tests.tasks.add",
        runs=[0] * 10 + [50],
    )
    known = [str(make_running_job(worker, last_attempted_at=ago(900)).id) for _ in range(2)]
    mute(admin_client, "stuck", *known)
    assert warned_of("stuck") == []
    third = make_running_job(worker, last_attempted_at=ago(500)).id
    assert warned_of("stuck") == [str(third)]


def test_muting_batches_and_schedules_hides_no_other(admin_client: Client) -> None:
    batches = [str(make_batch(broken="odd")) for _ in range(8)]
    names = [f"nightly-{number}" for number in range(8)]
    for name in names:
        Schedule.objects.create(name=name, task_path="tests.tasks.add", every=60.0)
    Schedule.objects.update(next_at=None, error="odd")
    mute(admin_client, "batch", *batches[:7])
    mute(admin_client, "schedule", *(f"error:{name}" for name in names[:7]))
    assert warned_of("batch") == batches[7:]
    assert warned_of("schedule") == [f"error:{names[7]}"]


def test_muting_again_changes_reason_and_end(admin_client: Client) -> None:
    admin_client.post(MUTE, FORM)
    until = timezone.localtime() + timedelta(days=3)
    given = {"reason": "later", "lasts": "", "until": until.strftime("%Y-%m-%dT%H:%M")}
    assert admin_client.post(MUTE, FORM | given).status_code == 302
    mute = Mute.objects.get()
    assert mute.reason == "later"
    assert abs(mute.until - until) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": ""},
        {"reason": " "},
        {"lasts": ""},
        {"lasts": "5"},
        {"until": "2020-01-01T00:00"},
        {"until": "2999-01-01T00:00"},
        {"until": "soon"},
        {"kind": "nothing"},
        {"kind": ""},
        {"subject": "(others)"},
        {"subject": "a\0b"},
        {"subject": "x" * 1_001},
        {"subject": "中" * 1_000},
        {"reason": "x" * 201},
    ],
    ids=str,
)
def test_what_is_not_filled_in_right_mutes_nothing(
    admin_client: Client, changes: dict[str, Any]
) -> None:
    assert admin_client.post(MUTE, FORM | changes).status_code == 200
    assert not Mute.objects.exists()


def test_an_address_that_names_no_warning(admin_client: Client) -> None:
    assert "names no warning" in admin_client.get(MUTE).content.decode()
    assert "names no warning" in admin_client.get(MUTE, {"kind": "<b>"}).content.decode()
    assert admin_client.get(UNMUTE).status_code == 405
    admin_client.post(UNMUTE, {"kind": "unserved", "subject": "a\0b"})


def test_who_may_not_control_queues_sees_no_button_and_is_refused(viewer: Client) -> None:
    Mute.objects.create(
        kind="unserved", subject="fax", reason="known", until=timezone.now() + timedelta(hours=1)
    )
    text = viewer.get(HOME).content.decode()
    assert "1 warning is muted" in text
    assert MUTE not in text
    assert UNMUTE not in text
    assert viewer.get(MUTE, {"kind": "unserved", "subject": "fax"}).status_code == 403
    assert viewer.post(MUTE, FORM).status_code == 403
    assert viewer.post(UNMUTE, {"kind": "unserved", "subject": "fax"}).status_code == 403
    assert Mute.objects.count() == 1
