"""The preview in the form of a schedule: when it would be due, and what is wrong with it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from django_pgjobs.models import Schedule
from tests.admin.schedule_support import declare
from tests.schedules.support import make_schedule

pytestmark = pytest.mark.django_db

PREVIEW = "admin:pgjobs_schedule_preview"
SPRING = {"starts_at_0": "2027-03-27", "starts_at_1": "00:00"}


def ask(client: Client, **fields: str) -> str:
    """Return what is drawn for a rule."""
    response = client.get(reverse(PREVIEW), fields)
    assert response.status_code == 200
    return response.content.decode()


def test_it_shows_the_next_five_and_what_the_clock_does(admin_client: Client) -> None:
    text = ask(admin_client, cron="30 2 * * *", timezone="Europe/Berlin", **SPRING)
    shown = re.findall(r"<li>(\S+ \S+) ", text)
    assert shown == [
        "2027-03-27 02:30:00",
        "2027-03-28 03:00:00",
        "2027-03-29 02:30:00",
        "2027-03-30 02:30:00",
        "2027-03-31 02:30:00",
    ]
    assert text.count("the clock is put forward over its time") == 1
    never = ask(
        admin_client, cron="30 2 * * *", timezone="Europe/Berlin", skipped_time="never", **SPRING
    )
    assert "2027-03-28" not in never


def test_an_interval_out_of_bounds_is_told_as_people_write_it(admin_client: Client) -> None:
    text = ask(admin_client, every="0.5", timezone="UTC")
    assert "expected every to be from 1 s to 3660 d, got 0.5 s." in text


def test_intervals_windows_and_exceptions_count(admin_client: Client) -> None:
    text = ask(
        admin_client,
        every="86400",
        timezone="UTC",
        except_dates="2027-03-28",
        ends_at_0="2027-03-31",
        ends_at_1="05:45",
        **SPRING,
    )
    # From midnight in Kathmandu on, until that of Greenwich.
    days = [day[-2:] for day in re.findall(r"<li>(2027-03-\d\d) ", text)]
    assert days == ["26", "27", "29", "30"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cron": "0 3 * *"}, "wrong number of fields"),
        ({"cron": "0 0 31 2 *"}, "0 0 31 2 *"),
        ({"cron": "@daily", "timezone": "Europe/Berln"}, "Europe/Berln"),
        ({"cron": "@daily", "every": "5"}, "either cron or every"),
        ({"every": "five"}, "Enter a number"),
        ({"cron": "@daily", "except_dates": "Christmas"}, "Christmas"),
        ({"cron": "<b>"}, "&lt;b&gt;"),
        ({"every": "1e400"}, "pgjobs-warn"),
        ({"cron": "@daily", "skipped_time": "perhaps"}, "perhaps"),
        ({"cron": "@daily", "ends_at_0": "2020-01-01", "ends_at_1": "00:00"}, "Nothing is to come"),
    ],
)
def test_what_is_wrong_is_said(admin_client: Client, fields: dict[str, str], said: str) -> None:
    text = ask(admin_client, **fields)
    assert said in text and "<li>" not in text


def test_an_empty_form_has_nothing_to_say(admin_client: Client) -> None:
    assert ask(admin_client, cron="", every="", timezone="") == ""


def test_each_second_of_a_year_is_five_lines(admin_client: Client) -> None:
    assert ask(admin_client, cron="* * * * * *", timezone="UTC").count("<li>") == 5


@pytest.mark.parametrize("make", [declare, make_schedule])
def test_the_form_begins_with_what_is_stored(admin_client: Client, make: Any) -> None:
    row = make()
    address = reverse("admin:pgjobs_schedule_change", args=[row.name])
    text = admin_client.get(address).content.decode()
    [box] = re.findall(r'<div id="pgjobs-preview" data-pgjobs-source="(\S+)" role="status">', text)
    assert box == reverse(PREVIEW)
    assert text.count("<li>20") >= 5
    assert "pgjobs/preview.js" in text


def test_a_new_form_begins_empty(admin_client: Client) -> None:
    text = admin_client.get(reverse("admin:pgjobs_schedule_add")).content.decode()
    assert 'role="status"></div>' in text


def test_it_is_for_those_who_may_change_schedules(client: Client) -> None:
    user = User.objects.create_user("anna", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_job"))
    client.force_login(user)
    assert client.get(reverse(PREVIEW), {"cron": "@daily"}).status_code == 403
    assert not Schedule.objects.exists()
