"""Running a schedule by hand: with other arguments, and what is in the way."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgjobs.declaring.redaction import redact
from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.schedules import control
from django_pgjobs.schedules.jobs import Blocked
from tests.admin.schedule_support import PAGE, REMIND, do, read
from tests.admin.sending import fields_of
from tests.schedules.support import make_schedule

pytestmark = pytest.mark.django_db

RUN = "admin:pgjobs_schedule_run"


def run_with(client: Client, **values: str) -> str:
    """Send the form of other arguments, and return what the page says then."""
    form = fields_of(read(client, RUN, name="each hour"), action="?")
    assert values.keys() <= form.keys()
    response = client.post(reverse(RUN), form | values, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def test_other_arguments_are_for_one_run(admin_client: Client) -> None:
    make_schedule(task_path=REMIND, args=["week"], kwargs={"password": "s3cret"})
    text = read(admin_client, RUN, name="each hour")
    assert "s3cret" not in text and "What is masked stays" in text
    kwargs = json.dumps(redact({"password": "s3cret"}))
    run_with(admin_client, args='["month"]', kwargs=kwargs)
    job = Job.objects.get(schedule="each hour")
    assert (job.args, job.kwargs) == (["month"], {"password": "s3cret"})
    assert Occurrence.objects.get().note == "run by admin, with other arguments"
    assert LogEntry.objects.get().change_message == "run schedule"
    assert Schedule.objects.get().args == ["week"]


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ("{}", "{}", "Expected a JSON list"),
        ("[]", "[]", "Expected a JSON object"),
        ("[]", "{}", "kind"),
        ('["a", "b", "c"]', "{}", "arguments"),
        ("[", "{}", "Expected a JSON list"),
    ],
)
def test_arguments_that_do_not_fit_enqueue_nothing(
    admin_client: Client, args: str, kwargs: str, said: str
) -> None:
    make_schedule(task_path=REMIND, args=["week"])
    text = run_with(admin_client, args=args, kwargs=kwargs)
    assert "errorlist" in text and said in text
    assert not Job.objects.exists()


def test_other_arguments_are_for_those_who_may_enqueue(client: Client) -> None:
    make_schedule()
    user = User.objects.create_user("anna", is_staff=True)
    names = ["view_job", "control_schedule"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    assert "with other arguments" not in read(client, PAGE, name="each hour")
    for send in (client.get, client.post):
        assert send(reverse(RUN), {"name": "each hour"}).status_code == 403
    assert not Job.objects.exists()


def test_what_the_server_does_not_give_now_is_said(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise Blocked("each hour", "canceling statement due to lock timeout")

    make_schedule()
    monkeypatch.setattr(control, "enqueue_occurrence", refuse)
    assert "cannot be run now: canceling statement" in do(admin_client, "run")
    assert not Occurrence.objects.exists()


def test_a_job_and_its_schedule_lead_to_each_other(admin_client: Client) -> None:
    make_schedule(task_path=REMIND, args=["week"])
    do(admin_client, "run")
    job = Job.objects.get()
    page = admin_client.get(reverse("admin:pgjobs_job_change", args=[job.pk])).content.decode()
    assert f'<a href="{reverse(PAGE)}?name=each+hour">each hour</a>' in page
    text = read(admin_client, PAGE, name="each hour")
    jobs = f"{reverse('admin:pgjobs_job_changelist')}?q=schedule%3A%22each+hour%22"
    assert f'<a href="{jobs}">Jobs</a>' in text
    assert f'href="{job.pk}/change/"' in admin_client.get(jobs).content.decode()


@pytest.mark.slow
def test_what_is_skipped_is_to_come_and_can_be_taken_back(admin_client: Client) -> None:
    """The list and the page tell the same next run, and no occurrence to come is a last one."""
    row = make_schedule(cron="0 3 * * *", timezone="UTC")
    assert row.next_at is not None
    for _ in range(2):
        do(admin_client, "skip")
    page, following = read(admin_client, PAGE, name="each hour"), row.next_at + timedelta(days=2)
    assert page.count(">skipped</div>") == 2 and "None has come yet." in page
    [shown] = re.findall(r"<dt>Next run</dt>.*?pgjobs-quiet\">(.*?)</div>", page)
    assert shown.startswith(f"{following:%Y-%m-%d %H:%M:%S}")
    assert f"{following:%Y-%m-%dT%H:%M:%SZ}" in read(admin_client)
    assert "pgjobs-outcomes" not in read(admin_client)
    text = do(admin_client, "unskip")
    assert "Not skipped any more: " in text and "Undo skips" not in text
    assert not Occurrence.objects.exists()
    assert "Nothing to come was skipped" in do(admin_client, "unskip")


def test_a_skip_that_is_past_stays(admin_client: Client) -> None:
    row = make_schedule()
    ago = timezone.now() - timedelta(hours=1)
    Occurrence.objects.create(schedule=row.name, scheduled_for=ago, outcome="skipped")
    do(admin_client, "unskip")
    assert Occurrence.objects.count() == 1
    assert "Skipped" in read(admin_client, PAGE, name="each hour")


def test_nothing_is_to_come_of_a_retired_one(admin_client: Client) -> None:
    make_schedule()
    Schedule.objects.update(retired_at=timezone.now())
    page = read(admin_client, PAGE, name="each hour")
    assert "Nothing is to come." in page and 'value="skip"' not in page
    assert "is retired" in do(admin_client, "skip")
    assert not Occurrence.objects.exists()


def test_a_run_by_hand_is_the_last_run(admin_client: Client) -> None:
    make_schedule()
    do(admin_client, "run")
    page = read(admin_client, PAGE, name="each hour")
    [last] = re.findall(r"<dt>Last run</dt><dd>(.*?)</dd>", page)
    assert "<time" in last
