"""What people send where USE_TZ is False: what they type is local time, as all that is shown."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job, Mute, Occurrence, Pause, Schedule, Token
from tests.admin.bulk_support import address, confirm
from tests.admin.lists import ids_in, listed
from tests.admin.schedule_support import BACKFILL, PAGE, add, change, do
from tests.admin.schedule_support import read as read_schedule
from tests.admin.test_copy import PATH, send
from tests.admin.test_export import download, rows_of
from tests.admin.test_job_actions import press
from tests.admin.test_muting import FORM, HOME, MUTE
from tests.admin.test_queues import post
from tests.admin.test_queues import read as read_queues
from tests.admin.test_schedule_preview import ask
from tests.admin.test_tokens import ADD, secret_on
from tests.admin.test_tokens import FORM as TOKEN
from tests.factories import make_job, make_worker
from tests.schedules.support import make_schedule
from tests.test_client import make_finished_job

pytestmark = pytest.mark.django_db

SEVEN = datetime(2031, 5, 6, 7)  # noqa: DTZ001
TYPED = "2031-05-06T07:00"


@pytest.fixture(autouse=True)
def no_time_zones(settings: Any) -> None:
    """Kathmandu is 5:45 ahead of UTC."""
    settings.USE_TZ = False


@pytest.mark.parametrize("typed", [TYPED, "2031-05-06T01:15Z"])
def test_a_pause_ends_when_its_form_says(admin_client: Client, typed: str) -> None:
    post(admin_client, "pause", kind="queue", name="mail", until=typed)
    assert Pause.objects.get().resume_at == SEVEN
    text = read_queues(admin_client, "admin:pgjobs_queue", name="mail")
    assert re.search(rf'name="until" value="{TYPED}"', text)


def test_a_pause_is_changed_as_a_row(admin_client: Client) -> None:
    typed = {"resume_at_0": "2031-05-06", "resume_at_1": "07:00:00"}
    form = {"kind": "queue", "name": "mail", "reason": "", **typed}
    assert admin_client.post(reverse("admin:pgjobs_pause_add"), form).status_code == 302
    assert Pause.objects.get().resume_at == SEVEN


@pytest.mark.parametrize("zone", ["", "+05:45"])
def test_a_warning_is_muted_until_a_time(admin_client: Client, zone: str) -> None:
    make_worker(queues=["mail"])
    make_job(queue_name="reports")
    until = datetime.now().replace(hour=7, minute=0) + timedelta(days=2)  # noqa: DTZ005
    admin_client.post(MUTE, {**FORM, "lasts": "", "until": f"{until:%Y-%m-%dT%H:%M}{zone}"})
    assert f"{Mute.objects.get().until:%H:%M}" == "07:00"
    assert " 7 a.m. by admin" in admin_client.get(HOME).content.decode()


def test_a_copy_and_a_retry_run_at_their_times(admin_client: Client) -> None:
    job_id = make_job(PATH, kwargs={"customer": 1})
    send(admin_client, job_id, run_after="2031-05-06T07:00:00")
    assert Job.objects.order_by("-pk")[0].run_after == SEVEN
    press(admin_client, job_id, "postpone", at=TYPED)
    assert Job.objects.get(pk=job_id).due_at == SEVEN
    failed = make_finished_job("failed", result=None)
    confirm(admin_client, address("requeue", Selection.ids([failed])), when="at", at=TYPED)
    assert Job.objects.get(pk=failed).run_after == SEVEN


@pytest.mark.slow
def test_a_time_range_finds_jobs_by_local_time(admin_client: Client) -> None:
    with connection.cursor() as cursor:
        # Beyond the newest rows the list begins at the end of the range.
        cursor.execute("SELECT now() - interval '1 day'")
        [[before]] = cursor.fetchall()
    ids = [make_job(enqueued_at=before), make_job()]
    day = {"enqueued_at__range__lte_0": f"{before:%Y-%m-%d}"}
    until = {**day, "enqueued_at__range__lte_1": f"{before:%H:%M:%S}"}
    assert ids_in(listed(admin_client, **until)) == ids[:1]
    since = {name.replace("lte", "gte"): value for name, value in until.items()}
    assert ids_in(listed(admin_client, **since)) == ids[::-1]
    assert ids_in(listed(admin_client, tab="failed", **until)) == []


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
def test_a_file_has_times_with_their_zone(admin_client: Client, file_format: str) -> None:
    make_job(run_after=SEVEN)
    text = download(admin_client, file_format=file_format)
    assert "2031-05-06T01:15:00+00:00" in text
    if file_format == "jsonl":
        assert rows_of(text)[0]["enqueued_at"].endswith("+00:00")


@pytest.mark.slow
def test_a_schedule_begins_and_ends_at_local_times(admin_client: Client) -> None:
    begin = {"starts_at_0": "2031-05-06", "starts_at_1": "07:00:00"}
    shown = ask(admin_client, cron="30 7 * * *", timezone="Asia/Kathmandu", **begin)
    assert "2031-05-06 07:30:00" in shown
    assert add(admin_client, **begin).status_code == 302
    assert Schedule.objects.get().starts_at == SEVEN
    change(admin_client, "mine", ends_at_0="2032-05-06", ends_at_1="07:00:00")
    row = Schedule.objects.get()
    assert (row.starts_at, row.ends_at) == (SEVEN, SEVEN.replace(year=2032))


@pytest.mark.slow
def test_an_occurrence_is_skipped_and_a_run_is_shown(admin_client: Client) -> None:
    make_schedule()
    assert "Skipped: " in do(admin_client, "skip")
    assert "skipped" in read_schedule(admin_client, PAGE, name="each hour")
    assert "Enqueued as job" in do(admin_client, "run")
    assert "Not skipped any more: " in do(admin_client, "unskip")


def test_a_backfill_is_enqueued(admin_client: Client) -> None:
    make_schedule()
    given = {"name": "each hour", "begin": "2026-01-01T00:00", "end": "2026-01-01T01:45"}
    answer = admin_client.post(reverse(BACKFILL), given, follow=True)
    assert "Enqueued: 2" in answer.content.decode()
    assert Occurrence.objects.filter(outcome="enqueued").count() == 2


def test_a_token_is_made_and_rotated(admin_client: Client) -> None:
    secret_on(admin_client.post(reverse(ADD), TOKEN))
    token = Token.objects.get()
    where = reverse("admin:pgjobs_token_rotate", args=[token.pk])
    secret_on(admin_client.post(where, {"keep": "3600"}))
    token.refresh_from_db()
    left = token.expires_at - datetime.now()  # noqa: DTZ005
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
