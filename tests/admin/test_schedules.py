"""The pages of schedules: what they show, what is done there, and who may."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.schedules.firing import fire_due
from tests.admin.schedule_support import BACKFILL, LIST, PAGE, REMIND, add, do, read
from tests.admin.sending import fields_of
from tests.factories import make_job
from tests.schedules.support import NOTE_TIME, let_wait, make_schedule, outcomes
from tests.schedules.tasks import one_at_a_time
from tests.test_admin import HOSTILE

pytestmark = pytest.mark.django_db

# Looking


def test_the_list_says_what_is_next_and_how_it_went(admin_client: Client) -> None:
    row = make_schedule(cron="0 3 * * *", timezone="Europe/Berlin")
    for hours, outcome, status in (
        (3, "enqueued", "successful"),
        (2, "enqueued", "failed"),
        (1, "missed", None),
    ):
        job_id = make_job(status=status, finished_at=timezone.now()) if status else None
        Occurrence.objects.create(
            schedule=row.name,
            scheduled_for=timezone.now() - timedelta(hours=hours),
            outcome=outcome,
            job_id=job_id,
        )
    Schedule.objects.update(last_at=timezone.now() - timedelta(hours=2))
    text = read(admin_client)
    assert "Every day at 03:00" in text or "At 03:00" in text
    assert "Europe/Berlin" in text and "1 missed" in text
    for said in ("Successful: 1", "Failed: 1", "Missed: 1"):
        assert said in text
    assert '<span class="pgjobs-status pgjobs-failed"' in text


def test_one_that_nobody_plans_is_late_and_not_due_soon(admin_client: Client) -> None:
    let_wait(make_schedule(), timedelta(minutes=1))
    assert ">when a worker has planned it<" in read(admin_client)
    let_wait(Schedule.objects.get(), timedelta(minutes=3))
    for text in (read(admin_client), read(admin_client, PAGE, name="each hour")):
        assert "Late" in text
        assert ">when a worker has planned it<" not in text


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({}, "Active"),
        ({"paused_at": timezone.now()}, "Paused"),
        ({"retired_at": timezone.now()}, "Retired"),
        ({"next_at": None}, "Ended"),
        ({"next_at": None, "error": "It is not planned: x"}, "Broken"),
        ({"error": "no key today"}, "Failing"),
        ({"next_at": timezone.now() - timedelta(hours=1)}, "Late"),
    ],
)
def test_the_state_is_a_word(admin_client: Client, columns: dict[str, Any], word: str) -> None:
    make_schedule()
    Schedule.objects.update(**columns)
    for text in (read(admin_client), read(admin_client, PAGE, name="each hour")):
        assert f"</span> {word}</span>" in text


def test_the_page_of_one_marks_what_the_clock_does(admin_client: Client) -> None:
    starts = datetime(2027, 3, 27, 12, tzinfo=UTC)
    make_schedule(cron="30 2 * * *", timezone="Europe/Berlin", starts_at=starts)
    text = read(admin_client, PAGE, name="each hour")
    assert "2027-03-28 03:00:00 CEST (Europe/Berlin)" in text
    assert "the clock is put forward over its time" in text


def test_arguments_are_masked(admin_client: Client) -> None:
    make_schedule(task_path=REMIND, kwargs={"kind": "x", "password": "geheim"})
    form = admin_client.get(reverse("admin:pgjobs_schedule_change", args=["each hour"]))
    for text in (read(admin_client, PAGE, name="each hour"), form.content.decode()):
        assert "geheim" not in text and "password" in text


def test_a_broken_row_is_shown_beside_others(admin_client: Client) -> None:
    make_schedule()
    Schedule.objects.create(name=HOSTILE, task_path=HOSTILE, cron=HOSTILE, timezone="No/Where")
    fire_due()
    for text in (read(admin_client), read(admin_client, PAGE, name=HOSTILE)):
        assert HOSTILE not in text
    assert "each hour" in read(admin_client)


def test_a_hundred_schedules_fill_a_page(admin_client: Client) -> None:
    Schedule.objects.bulk_create(
        Schedule(name=f"s{number:03}", task_path=NOTE_TIME, every=3600.0) for number in range(102)
    )
    with CaptureQueriesContext(connection) as queries:
        text = read(admin_client)
    assert len(queries) <= 14
    assert "s099" in text and "s100" not in text and "?after=s099" in text
    assert "s100" in read(admin_client, after="s099")


def test_a_schedule_that_is_not_there_leads_to_the_list(admin_client: Client) -> None:
    for address in (reverse(PAGE), reverse(BACKFILL)):
        response = admin_client.get(address, {"name": "nothing\0"})
        assert (response.status_code, response["Location"]) == (302, reverse(LIST))


# What people do


def test_run_now_enqueues_a_job(admin_client: Client) -> None:
    make_schedule()
    text = do(admin_client, "run")
    job = Job.objects.get(schedule="each hour")
    assert f"Enqueued as job {job.pk}." in text
    assert Occurrence.objects.get().note == "run by admin"
    assert LogEntry.objects.get().change_message == "run schedule"


def test_what_a_person_runs_is_not_one_of_its_plan(admin_client: Client) -> None:
    """The page said "Runs 0" of a schedule that had just run."""
    make_schedule(max_runs=3)
    do(admin_client, "run")
    text = " ".join(re.sub(r"<[^>]*>", " ", read(admin_client, PAGE, name="each hour")).split())
    assert "Runs by its plan 0 / 3 without those of “Run now”" in text


def test_a_job_that_is_there_with_the_unique_key_is_said_to_be_there(admin_client: Client) -> None:
    make_schedule(task_path=one_at_a_time.module_path)
    known = one_at_a_time.enqueue().id
    text = do(admin_client, "run")
    assert f"Already there: job {known} has the unique key. Nothing was enqueued." in text
    assert Occurrence.objects.get().outcome == "joined"


def test_what_cannot_be_run_says_why(admin_client: Client) -> None:
    make_schedule(task_path="nothing.like.it")
    assert "No task nothing.like.it" in do(admin_client, "run")
    assert not LogEntry.objects.exists()


def test_skipping_the_next_one(admin_client: Client) -> None:
    row = make_schedule()
    assert "Skipped: " in do(admin_client, "skip")
    occurrence = Occurrence.objects.get()
    assert (occurrence.outcome, occurrence.scheduled_for) == ("skipped", row.next_at)


def test_pausing_and_resuming(admin_client: Client) -> None:
    make_schedule()
    assert "sale &lt;b&gt;" in do(admin_client, "pause", reason="sale <b>")
    row = Schedule.objects.get()
    assert (row.paused_by, row.pause_reason) == ("admin", "sale <b>")
    assert "It was paused before" in do(admin_client, "pause")
    assert "Resumed: each hour" in do(admin_client, "resume")
    assert Schedule.objects.get().paused_at is None


def test_a_backfill_is_shown_before_it_is_done(admin_client: Client) -> None:
    make_schedule()
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    begin, end = (timezone.localtime(hour - timedelta(hours=hours)) for hours in (3, 0))
    asked = {"begin": f"{begin:%Y-%m-%dT%H:%M}", "end": f"{end:%Y-%m-%dT%H:%M}"}
    asked["name"] = "each hour"
    text = read(admin_client, BACKFILL, **asked)
    assert "4 occurrences" in text and not Job.objects.exists()
    form = fields_of(text, method="post", action="?")
    response = admin_client.post(reverse(BACKFILL), form, follow=True)
    said = "Enqueued: 4, joined a job that was already there: 0, known before: 0, failed: 0."
    assert said in response.content.decode()
    assert outcomes() == ["enqueued"] * 4


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        ("2026-01-02T00:00", "2026-01-01T00:00", "Expected an end after the beginning."),
        ("2026-01-02T00:00", "9000-01-01T00:00", "Expected an end that is past"),
        ("2000-01-02T00:00", "2020-01-01T00:00", "expected at most 1000 occurrences"),
        ("yesterday", "2020-01-01T00:00", "errorlist"),
        ("0001-01-01T00:00", "0001-01-02T00:00", "errorlist"),
        ("1969-12-31T23:59", "2020-01-01T00:00", "errorlist"),
        ("2020-01-01T00:00", "9999-12-31T23:59", "errorlist"),
    ],
)
def test_a_backfill_that_cannot_be(admin_client: Client, begin: str, end: str, said: str) -> None:
    make_schedule()
    asked = {"name": "each hour", "begin": begin, "end": end}
    assert said in read(admin_client, BACKFILL, **asked)
    assert said in admin_client.post(reverse(BACKFILL), asked).content.decode()
    assert not Job.objects.exists()


# Who


def test_who_may_look_only_has_no_buttons(client: Client) -> None:
    make_schedule(kwargs={"password": "geheim"})
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    changing = reverse("admin:pgjobs_schedule_change", args=["each hour"])
    response = client.get(changing)
    assert response["Location"] == f"{reverse(PAGE)}?name=each+hour"
    assert "geheim" not in client.get(changing, follow=True).content.decode()
    for text in (read(client), read(client, PAGE, name="each hour")):
        assert 'name="do"' not in text
    for verb in ("run", "skip", "pause", "resume", "follow"):
        values = {"do": verb, "name": "each hour"}
        assert client.post(reverse("admin:pgjobs_schedule_do"), values).status_code == 403
    assert client.get(reverse(BACKFILL), {"name": "each hour"}).status_code == 403
    assert client.get(reverse("admin:pgjobs_schedule_add")).status_code == 403
    assert client.post(reverse("admin:pgjobs_schedule_add")).status_code == 403
    assert client.post(changing).status_code == 403
    assert not Job.objects.exists() and not Occurrence.objects.exists()


def test_who_may_control_schedules_needs_no_more(client: Client) -> None:
    make_schedule()
    user = User.objects.create_user("operator", is_staff=True)
    codenames = ["view_job", "control_schedule"]
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(user)
    assert "Enqueued as job" in do(client, "run")
    assert add(client).status_code == 302


def test_doing_takes_a_post(admin_client: Client) -> None:
    make_schedule()
    assert admin_client.get(reverse("admin:pgjobs_schedule_do"), {"do": "run"}).status_code == 405


def test_pages_load_nothing_of_the_project(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("a page looked for tasks")

    monkeypatch.setattr("django_pgjobs.admin.schedules.forms.discover_tasks_once", refuse)
    monkeypatch.setattr("django_pgjobs.admin.schedules.forms.find_task", refuse)
    monkeypatch.setattr("django_pgjobs.admin.schedules.page.discover_tasks_once", refuse)
    make_schedule()
    read(admin_client)
    read(admin_client, PAGE, name="each hour")
    read(admin_client, BACKFILL, name="each hour")
    for name, args in (("add", []), ("change", ["each hour"])):
        assert (
            admin_client.get(reverse(f"admin:pgjobs_schedule_{name}", args=args)).status_code == 200
        )
