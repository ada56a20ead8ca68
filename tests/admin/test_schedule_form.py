"""The form of a schedule: what it sends, what that changes, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgjobs import schedule
from django_pgjobs.declaring.registry import discover_tasks_once
from django_pgjobs.models import Schedule
from django_pgjobs.schedules.firing import fire_due
from tests.admin.schedule_support import PAGE, REMIND, add, change, declare, do, drawn, read, send
from tests.helpers import some_always
from tests.schedules import tasks
from tests.schedules.support import NOTE_TIME, declaring_anew, let_be_due, make_schedule

pytestmark = pytest.mark.django_db


def test_a_person_makes_a_schedule(admin_client: Client) -> None:
    response = add(admin_client, except_dates="2026-12-24, 2026-12-25")
    assert response["Location"] == f"{reverse(PAGE)}?name=mine"
    fire_due()
    row = Schedule.objects.get()
    assert (row.args, row.declared, row.error) == (["x"], None, "")
    assert row.except_dates == ["2026-12-24", "2026-12-25"]
    assert row.next_at is not None and row.next_at > timezone.now()


def test_seconds_are_shown_as_a_person_would_write_them(admin_client: Client) -> None:
    make_schedule(every=90.0, grace=1.5, jitter=0.0)
    form = drawn(admin_client, "each hour")
    assert [form[name] for name in ("every", "grace", "jitter")] == ["90", "1.5", "0"]


@pytest.mark.parametrize(
    ("values", "said"),
    some_always(
        [
            ({"task_path": NOTE_TIME}, "schedulable=True"),
            ({"task_path": "nothing.like.it"}, "no task nothing.like.it"),
            ({"args": "[]"}, "missing"),
            ({"args": "{}"}, "Expected a JSON list"),
            ({"args": '["\\ud800"]'}, "args"),
            ({"args": "[" * 3_000 + "]" * 3_000}, "Expected a JSON list"),
            ({"args": f"[1{'0' * 6_000}]"}, "Expected a JSON list"),
            ({"args": "[NaN]"}, "expected a finite number"),
            ({"max_runs": "99999999999"}, "max_runs"),
            ({"grace": "nan"}, "grace"),
            ({"starts_at_0": "0001-01-01", "starts_at_1": "00:00"}, "expected starts from 1970"),
            ({"starts_at_0": "9999-12-31", "starts_at_1": "23:59:59"}, "expected starts from 1970"),
            ({"kwargs": '{"colour": 1}'}, "colour"),
            ({"cron": "0 3 * *"}, "wrong number of fields"),
            ({"cron": "0 0 31 2 *"}, "cron"),
            ({"cron": ""}, "either cron or every"),
            ({"every": "5"}, "either cron or every"),
            ({"cron": "", "every": "0.5"}, "greater than or equal to 1"),
            ({"cron": "", "every": "1e9"}, "less than or equal to 316224000"),
            ({"cron": "TZ=UTC 0 3 * * *"}, "timezone="),
            ({"cron": "@reboot"}, "workers come and go"),
            ({"jitter": "86401"}, "less than or equal to 86400"),
            ({"grace": "-1"}, "greater than or equal to 0"),
            ({"ends_at_0": "2020-01-01", "ends_at_1": "00:00"}, "That is past"),
            ({"name": "a\x1b[31m"}, "without control"),
            ({"name": "a\u202ez"}, "without control"),
            ({"timezone": "Europe/Berln"}, "Europe/Berln"),
            ({"except_dates": "Christmas"}, "Christmas"),
            ({"max_runs": "0"}, "max_runs"),
            ({"jitter": "-1"}, "greater than or equal to 0"),
            ({"jitter": "1e400"}, "errorlist"),
            ({"overlap": "wait"}, "errorlist"),
        ],
        every=4,
    ),
)
def test_what_the_form_refuses(admin_client: Client, values: dict[str, str], said: str) -> None:
    response = add(admin_client, **values)
    assert response.status_code == 200
    text = response.content.decode()
    assert "errorlist" in text and said in text and "timedelta" not in text
    assert not Schedule.objects.exists()


def test_a_row_of_sql_may_be_due_at_other_times_and_do_nothing_else(admin_client: Client) -> None:
    """Its task does not allow schedules that people make."""
    make_schedule(task_path=NOTE_TIME)
    change(admin_client, "each hour", every="7200")
    assert Schedule.objects.get().every == 7200
    response = change(admin_client, "each hour", args='["x"]')
    assert "schedulable=True" in response.content.decode()
    assert Schedule.objects.get().args == []


def test_a_name_is_taken_once(admin_client: Client) -> None:
    add(admin_client)
    assert "already exists" in add(admin_client, cron="0 5 * * *").content.decode()
    assert Schedule.objects.get().cron == "0 3 * * *"


@pytest.mark.slow
def test_a_masked_argument_stays(admin_client: Client) -> None:
    add(admin_client, args="[]", kwargs='{"kind": "x", "password": "geheim"}')
    address = reverse("admin:pgjobs_schedule_change", args=["mine"])
    shown = admin_client.get(address).context["adminform"].form.initial["kwargs"]
    change(admin_client, "mine", kwargs=shown.replace("x", "y"))
    assert Schedule.objects.get().kwargs == {"kind": "y", "password": "geheim"}


def test_a_change_writes_nothing_that_a_scheduler_writes(admin_client: Client) -> None:
    """The form may be old: what ran meanwhile is not undone."""
    row = make_schedule(task_path=REMIND, args=["x"])
    form = drawn(admin_client, "each hour")
    let_be_due(row)
    fire_due()
    before = Schedule.objects.get()
    assert send(admin_client, "each hour", form, jitter="5").status_code == 302
    after = Schedule.objects.get()
    assert (after.jitter, after.runs) == (5.0, 1)
    assert (after.next_at, after.last_job_id) == (before.next_at, before.last_job_id)


@pytest.mark.slow
def test_what_is_changed_on_a_schedule_of_the_code_is_kept_and_marked(admin_client: Client) -> None:
    declare()
    assert not {"name", "task_path", "args", "kwargs"} & drawn(admin_client, "of code").keys()
    assert change(admin_client, "of code", cron="0 5 * * *").status_code == 302
    row = Schedule.objects.get()
    assert (row.cron, row.args, row.changed_fields) == ("0 5 * * *", ["x"], ["cron"])
    declare()
    assert Schedule.objects.get().cron == "0 5 * * *"
    assert "Changed here:" in read(admin_client, PAGE, name="of code")
    assert "as the code says again" in do(admin_client, "follow", "of code")
    row = Schedule.objects.get()
    assert (row.cron, row.changed_fields) == ("0 3 * * *", [])
    assert "is not declared by code" in do(admin_client, "follow", make_schedule().name)


def test_the_form_of_a_task_that_is_not_here_changes_the_time(admin_client: Client) -> None:
    declare()
    Schedule.objects.update(task_path="nothing.like.it")
    assert change(admin_client, "of code", cron="0 5 * * *").status_code == 302
    assert Schedule.objects.get().cron == "0 5 * * *"


@pytest.mark.parametrize("is_of_code", [True, False])
def test_a_form_changes_what_was_changed_in_it(admin_client: Client, is_of_code: bool) -> None:
    """All other columns stay, also such as the form cannot show in full."""
    starts = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    row = declare() if is_of_code else make_schedule(task_path=REMIND, args=["x"])
    Schedule.objects.update(starts_at=starts, except_dates=["2030-01-01"])
    before = Schedule.objects.values().get()
    assert change(admin_client, row.name).status_code == 302
    assert Schedule.objects.values().get() == before | {
        "changed_fields": ["except_dates", "starts_at"] if is_of_code else []
    }
    assert change(admin_client, row.name, grace="7200").status_code == 302
    after = Schedule.objects.get()
    assert (after.grace, after.starts_at, after.except_dates) == (7200.0, starts, ["2030-01-01"])


def test_an_old_form_does_not_undo_a_deploy(admin_client: Client) -> None:
    declare()
    form = drawn(admin_client, "of code")
    declare("0 5 * * *")
    assert send(admin_client, "of code", form, grace="7200").status_code == 302
    row = Schedule.objects.get()
    assert (row.cron, row.grace, row.changed_fields) == ("0 5 * * *", 7200.0, ["grace"])


def test_who_sends_a_form_without_what_it_showed_changes_the_row_as_it_is(
    admin_client: Client,
) -> None:
    make_schedule(task_path=REMIND, args=["x"], cron="0 3 * * *")
    drawn_before = drawn(admin_client, "each hour")
    form = {key: text for key, text in drawn_before.items() if not key.startswith("initial-")}
    response = send(admin_client, "each hour", form, cron="", every="60")
    assert response.status_code == 302
    row = Schedule.objects.get()
    assert (row.cron, row.every, row.args) == (None, 60.0, ["x"])


@pytest.mark.django_db(transaction=True)
def test_the_history_answers_a_form_as_it_answers_a_look(admin_client: Client) -> None:
    make_schedule()
    address = reverse("admin:pgjobs_schedule_history", args=["each hour"])
    assert admin_client.post(address).status_code == 200


def test_two_people_who_change_different_things_both_do(admin_client: Client) -> None:
    make_schedule(task_path=REMIND, args=["x"])
    form = drawn(admin_client, "each hour")
    change(admin_client, "each hour", args='["y"]', except_dates="2030-01-01")
    assert send(admin_client, "each hour", form, missed="all").status_code == 302
    row = Schedule.objects.get()
    assert (row.args, row.except_dates, row.missed) == (["y"], ["2030-01-01"], "all")


def test_what_a_browser_adds_to_the_form_of_the_code_changes_nothing(admin_client: Client) -> None:
    declare()
    forged = {"task_path": REMIND, "args": '["forged"]', "kwargs": "{}", "name": "other"}
    address = reverse("admin:pgjobs_schedule_change", args=["of code"])
    form = drawn(admin_client, "of code") | forged
    assert admin_client.post(address, form | {"grace": "7200"}).status_code == 302
    row = Schedule.objects.get()
    assert (row.name, row.task_path, row.args) == ("of code", NOTE_TIME, ["x"])
    assert (row.grace, row.changed_fields) == (7200.0, ["grace"])


def test_the_code_s_name_is_taken_before_a_worker_wrote_it(admin_client: Client) -> None:
    with declaring_anew():
        schedule(tasks.note_time, name="of code", cron="0 3 * * *", args=["x"])
        response = add(admin_client, name="of code")
    assert "The code declares a schedule of this name" in response.content.decode()
    assert not Schedule.objects.exists()


def test_a_new_one_is_offered_the_tasks_that_are_loaded(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    discover_tasks_once()
    text = read(admin_client, "admin:pgjobs_schedule_add")
    assert f'<option value="{REMIND}">' in text and NOTE_TIME not in text
    assert 'list="task_path-offered"' in text and '<datalist id="task_path-offered">' in text
    monkeypatch.setattr("django_pgjobs.declaring.schedules.is_discovered", lambda: False)
    assert '<option value="tests' not in read(admin_client, "admin:pgjobs_schedule_add")


def test_a_new_schedule_goes_by_the_project_s_clock(admin_client: Client, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kathmandu"
    add(admin_client)
    assert Schedule.objects.get().timezone == "Asia/Kathmandu"


@pytest.mark.slow
@pytest.mark.parametrize(
    "columns",
    some_always(
        [
            {"except_dates": "'{NULL}'"},
            {"args": "'[\"\\ud800\"]'"},
            {"kwargs": '\'{"kind": "\\ud800"}\''},
            {"args": "'{}'"},
            {"declared": "'{\"starts_at\": 5}'"},
            {"declared": '\'{"max_runs": "x"}\''},
            {"declared": "'{\"except_dates\": 5}'"},
            {"declared": "'{\"nothing\": 5}'"},
            {"declared": "'[]'"},
        ]
    ),
)
def test_odd_rows_are_drawn_and_refused_in_words(
    admin_client: Client, columns: dict[str, str]
) -> None:
    make_schedule(task_path=REMIND, args=["x"])
    sets = ", ".join(f"{name} = {value}" for name, value in columns.items())
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE pgjobs_schedule SET {sets}")
    read(admin_client)
    read(admin_client, PAGE, name="each hour")
    read(admin_client, "admin:pgjobs_schedule_run", name="each hour")
    assert change(admin_client, "each hour", grace="7").status_code in (200, 302)
    for verb in ("run", "skip", "follow", "pause", "resume"):
        do(admin_client, verb)
    # As each of these would be in a request of its own.
    assert Schedule.objects.filter(name="each hour").exists()


def test_what_the_code_declares_is_deleted_when_it_is_retired(admin_client: Client) -> None:
    declare()
    address = reverse("admin:pgjobs_schedule_delete", args=["of code"])
    assert admin_client.post(address, {"post": "yes"}).status_code == 403
    Schedule.objects.update(retired_at=timezone.now())
    assert admin_client.post(address, {"post": "yes"}).status_code == 302
    assert not Schedule.objects.exists()
