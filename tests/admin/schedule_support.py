"""What the tests of the pages of schedules share: reading, sending, and a schedule of the code."""

from __future__ import annotations

from typing import Any

from django.test import Client
from django.urls import reverse

from django_pgjobs import schedule
from django_pgjobs.models import Schedule
from django_pgjobs.schedules.syncing import sync_schedules
from tests.admin.sending import fields_of
from tests.schedules import tasks
from tests.schedules.support import declaring_anew

LIST = "admin:pgjobs_schedule_changelist"
PAGE = "admin:pgjobs_schedule_page"
BACKFILL = "admin:pgjobs_schedule_backfill"
REMIND = tasks.remind.module_path


def read(client: Client, name: str = LIST, /, **query: str) -> str:
    """Return the text of a page that has to be there."""
    response = client.get(reverse(name), query)
    assert response.status_code == 200
    return response.content.decode()


def do(client: Client, verb: str, name: str = "each hour", **values: str) -> str:
    """Send a button of the page of a schedule, and return what that says then."""
    address = reverse("admin:pgjobs_schedule_do")
    form = fields_of(read(client, PAGE, name=name), action=address)
    response = client.post(address, form | values | {"do": verb}, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def drawn(client: Client, name: str | None = None) -> dict[str, str]:
    """Return what the form of a schedule sends if nobody changes it; without a name, a new one."""
    verb, key = ("add", []) if name is None else ("change", [name])
    response = client.get(reverse(f"admin:pgjobs_schedule_{verb}", args=key))
    assert response.status_code == 200
    return fields_of(response.content.decode(), id="schedule_form")


def send(client: Client, row: str | None, form: dict[str, str], **values: str) -> Any:
    """Send a form that was drawn before, with these values; no other field can be filled in."""
    assert values.keys() <= form.keys()
    verb, key = ("add", []) if row is None else ("change", [row])
    return client.post(reverse(f"admin:pgjobs_schedule_{verb}", args=key), form | values)


def add(client: Client, **values: str) -> Any:
    """Send the form that adds one."""
    given = {"name": "mine", "task_path": REMIND, "args": '["x"]', "cron": "0 3 * * *"}
    return send(client, None, drawn(client), **given | values)


def change(client: Client, row: str, **values: str) -> Any:
    """Send the form that changes one, with nothing else changed."""
    return send(client, row, drawn(client, row), **values)


def declare(cron: str = "0 3 * * *") -> Schedule:
    """Return the row of a schedule of the code, as a deploy writes it."""
    with declaring_anew():
        schedule(tasks.note_time, name="of code", cron=cron, timezone="UTC", args=["x"])
        sync_schedules()
    return Schedule.objects.get(name="of code")
